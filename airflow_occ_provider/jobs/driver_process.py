"""Who a driver is: a process told apart from any other, also by a later try on another host."""

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
    """The table in which a process id means one process.

    :param host: the host's name.
    :param boot: the kernel's random id of this boot; empty where it cannot be told.
    :param namespace: the PID namespace, which every container has of its own; empty likewise.
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
        """Whether a look at this table tells of a process in the other: only if they are one."""
        return bool(self.boot and self.namespace) and self == other


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """One process, once and for all.

    :param table: where its id holds.
    :param pid: its id, which is also that of its process group and session.
    :param started: clock ticks from boot to its start; 0 where it cannot be told.
    """

    table: ProcessTable
    pid: int
    started: int = 0

    @classmethod
    def of(cls, pid: int) -> DriverProcess:
        """Describe a process of this host."""
        return cls(ProcessTable.here(), pid, _started(pid))

    def has_its_id(self) -> bool:
        """Whether its id has not gone to another process; its session keeps it while anyone lives."""
        return _started(self.pid) in (0, self.started)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self.table), "pid": self.pid, "started": self.started}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> DriverProcess:
        """Read ``to_json`` back."""
        table = ProcessTable(kept["host"], kept["boot"], kept["namespace"])
        return cls(table, kept["pid"], kept["started"])

    def __str__(self) -> str:
        return f"process {self.pid} on {self.table.host}"


def _started(pid: int) -> int:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[_START_FIELD])
