"""Identifies a driver's process uniquely, also for a later try on another host."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_START_FIELD = 19  # of /proc/PID/stat, counted from the process state, which follows the name


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The process table in which a process id means one process.

    :param boot: the kernel's random id of this boot; empty if unknown.
    :param namespace: the PID namespace, of which every container has its own; empty if unknown.
    """

    host: str
    boot: str
    namespace: str

    @classmethod
    def here(cls) -> ProcessTable:
        """Return the table of this process."""
        try:
            boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
            namespace = str((_PROC / "self/ns/pid").readlink())
        except OSError:
            boot = namespace = ""
        return cls(socket.gethostname(), boot, namespace)

    def proves(self, other: ProcessTable) -> bool:
        """Whether this table shows the processes of the other: only if both are one."""
        return bool(self.boot and self.namespace) and self == other


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """One process, distinguished from any other with the same id.

    :param table: in which its id is valid.
    :param pid: its id, which is also that of its process group and session.
    :param started: clock ticks from boot to its start; 0 if unknown.
    """

    table: ProcessTable
    pid: int
    started: int = 0

    @classmethod
    def of(cls, pid: int) -> DriverProcess:
        """Describe a process of this host."""
        return cls(ProcessTable.here(), pid, _started(pid))

    @property
    def session(self) -> int | None:
        """The id of its session; ``None`` if another process has its id now."""
        return self.pid if _started(self.pid) in (0, self.started) else None

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self.table), "pid": self.pid, "started": self.started}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> DriverProcess:
        """Read ``facts`` back."""
        table = ProcessTable(facts["host"], facts["boot"], facts["namespace"])
        return cls(table, facts["pid"], facts["started"])

    def __str__(self) -> str:
        return f"process {self.pid} on {self.table.host}"


def _started(pid: int) -> int:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[_START_FIELD])
