"""The processes of a driver on this host, and what a signal handler may do."""

from __future__ import annotations

import _thread
import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE

_LOOK_S = 0.02
_TERM_GRACE_S = 1.5
_KILL_GRACE_S = 2.0
LONGEST_END_S = _TERM_GRACE_S + _KILL_GRACE_S
_POLL_S = 0.02
_LOOKS = 3
_PROC = Path("/proc")
_NUMBER = re.compile(r"[0-9]{1,18}")
_START_FIELD = 19  # of /proc/PID/stat, counted from the process state, which follows the name


class Flag:
    """A request that a signal handler may make: unlike an event, it takes no lock.

    An operator that holds one can be copied and pickled.
    """

    def __init__(self) -> None:
        self._set_s: float | None = None

    def set(self) -> None:
        """Make the request; a later one changes nothing."""
        if self._set_s is None:
            self._set_s = time.monotonic()

    def is_set(self) -> bool:
        """Whether the request was made."""
        return self._set_s is not None

    def left_s(self, longest_s: float) -> float:
        """Return what is left of a time that begins with the request; all of it before."""
        if self._set_s is None:
            return longest_s
        return max(0.0, self._set_s + longest_s - time.monotonic())

    def wait(self, longest_s: float) -> None:
        """Wait until the request is made, or for a while."""
        deadline = time.monotonic() + longest_s
        while not self.is_set() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)


def call_apart(call: Callable[[], object]) -> Flag:
    """Begin a call in another thread; return what is set at its end.

    The interrupted code may hold a lock that the call needs. This takes none: not even those of
    ``threading``.
    """
    done = Flag()

    def run() -> None:
        try:
            call()
        finally:
            done.set()

    _thread.start_new_thread(run, ())
    return done


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """One process, distinguished from any other with its id, also elsewhere.

    :param pid: its id, which is also that of its process group and session.
    :param started: clock ticks from boot to its start; 0 if unknown.
    :param boot: the kernel's random id of the boot; empty if unknown.
    :param namespace: the PID namespace, of which every container has its own; empty if unknown.
    :param user: id of the account that has described it. The system hides from another one what the
        process has started.
    """

    pid: int
    started: int = 0
    host: str = ""
    boot: str = ""
    namespace: str = ""
    user: int = -1

    @classmethod
    def of(cls, pid: int) -> DriverProcess:
        """Describe a process of this host."""
        try:
            boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
            namespace = str((_PROC / "self/ns/pid").readlink())
        except OSError:
            boot = namespace = ""
        return cls(pid, _started(pid), socket.gethostname(), boot, namespace, os.getuid())

    @property
    def is_here(self) -> bool:
        """Whether the process table shows it and all that it has started, if they live."""
        here = replace(DriverProcess.of(self.pid), started=self.started)
        return bool(self.boot and self.namespace) and self == here

    @property
    def session(self) -> int | None:
        """The id of its session; ``None`` if another process has its id now."""
        return self.pid if _started(self.pid) in (0, self.started) else None

    @property
    def is_gone(self) -> bool:
        """Whether the process table of this process proves that it has ended."""
        try:
            return _start_ticks(self.pid) != self.started or _is_zombie(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return True
        except OSError:  # such as too many open files
            return False

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> DriverProcess:
        """Read ``facts`` back."""
        return cls(**{field.name: facts[field.name] for field in fields(cls)})

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def child_process(details: Mapping[str, str]) -> DriverProcess | None:
    """Return the JVM of a driver, if this process or a child of it has started it.

    What a driver says may be anything, and on two hosts all of it may be the same: names, ids of
    processes, and after a copy of a running machine even that of the boot. So the process must be
    there while the driver waits, and descend from this one. Of such a process no other one can say the
    same, and once it is gone from the process table of this process it has ended.

    :param details: of the driver's hello.
    """
    numbers = [details.get(name, "") for name in ("jvm_pid", "jvm_started")]
    if not all(map(_NUMBER.fullmatch, numbers)):
        return None
    pid, started = map(int, numbers)
    process = DriverProcess.of(pid)
    said = (started, details.get("boot"), details.get("pid_namespace"))
    if not process.is_here or said != (process.started, process.boot, process.namespace):
        return None
    try:
        parents = psutil.Process(pid).parents()
    except psutil.Error:
        return None
    return process if os.getpid() in (parent.pid for parent in parents) else None


def processes_of(identity: str, session: int | None = None) -> list[psutil.Process]:
    """Return the living processes of a task run's drivers on this host.

    They are identified by a variable of their environment, which also a wrapper that starts
    ``spark-submit`` in another session passes on, and by the session of a driver: PySpark's workers
    leave its process group. Those of other accounts may be missing.

    :param identity: the beginning of the task run's; empty for the session alone.
    :param session: of a driver.
    """
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_of_run = os.getsid(process.pid) == session or (
                identity and process.environ().get(IDENTITY_VARIABLE, "").startswith(identity)
            )
            if is_of_run and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def end_processes(identity: str, session: int | None = None) -> list[int]:
    """End what ``processes_of`` returns; return the ids of those still alive.

    First SIGTERM, so that Spark removes its scratch folders, then SIGKILL; within ``LONGEST_END_S``,
    since Airflow kills a task 5 seconds after its request to stop.
    """
    begun_s, living = time.monotonic(), partial(processes_of, identity, session)
    processes = living()
    _send(processes, signal.SIGTERM)
    asked_s = time.monotonic()
    while processes and time.monotonic() < asked_s + _TERM_GRACE_S:
        time.sleep(_POLL_S)
        processes = living()
    quiet = 0  # a process shows no environment during its exec
    while quiet < _LOOKS and time.monotonic() < begun_s + LONGEST_END_S:
        _send(processes, signal.SIGKILL)
        time.sleep(_POLL_S)
        processes = living()
        quiet = 0 if processes else quiet + 1
    return [process.pid for process in processes]


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _started(pid: int) -> int:
    try:
        return _start_ticks(pid)
    except OSError:
        return 0


def _start_ticks(pid: int) -> int:
    """Return the clock ticks from boot to the start of a process.

    :raises OSError: if it is not there, or cannot be read.
    """
    return int(_stat(pid)[_START_FIELD])


def _is_zombie(pid: int) -> bool:
    """Return whether a process and its threads have ended, and nothing has collected its exit code.

    A container's first process may never do so for the orphans that it gets.
    """
    threads = (_PROC / str(pid) / "task").iterdir()
    return _stat(pid)[0] in ("Z", "X") and len(list(threads)) == 1


def _stat(pid: int) -> list[str]:
    """Return what ``/proc/PID/stat`` says after the process's name, which may contain anything."""
    return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
