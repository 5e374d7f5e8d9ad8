"""A Spark driver on this host: started at a gate, followed while it runs, ended with all of its."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from airflow_occ_provider.jobs import gate
from airflow_occ_provider.jobs.attempt import IDENTITY_VARIABLE
from airflow_occ_provider.jobs.driver_log import DriverLog
from airflow_occ_provider.jobs.driver_process import DriverProcess

_TERM_GRACE_S = 1.5
_KILL_GRACE_S = 2.0
LONGEST_END_S = _TERM_GRACE_S + _KILL_GRACE_S
_ORPHAN_GRACE_S = 10.0
_POLL_S = 0.05
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Follower:
    """Who is told what a driver does.

    :param log: reads every line that it writes.
    :param on_start: called with its process before it may do anything; where it raises, the driver
        never starts.
    :param on_instant: called with the requested time of each write that it asks for.
    :param on_line: called with every line after that.
    """

    log: DriverLog
    on_start: Callable[[DriverProcess], None] = lambda _: None
    on_instant: Callable[[str], None] = lambda _: None
    on_line: Callable[[str], None] = lambda _: None


class Flag:
    """Whether something was asked for; unlike an event it takes no lock, so a signal handler may set it.

    An operator that holds one can be copied and pickled.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Ask for it."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether it was asked for."""
        return self._is_set


class ClientDriver:
    """The driver that a ``SparkSubmitHook`` starts in client mode.

    :param hook: the hook; its ``submit`` and its reading of the log are extended in place.
    :param follower: who is told what it does.
    :param environment: environment of the driver.
    :param identity: by which it, and all that it starts, is known on this host.
    :param killed: set when the task was asked to stop.
    """

    def __init__(
        self,
        hook: Any,
        follower: Follower,
        environment: Mapping[str, str],
        identity: str,
        killed: Flag,
    ) -> None:
        self._hook = hook
        self._follower = follower
        self._identity = identity
        self._killed = killed
        self.log_read = False
        read, build = hook._process_spark_submit_log, hook._build_spark_submit_command
        hook._process_spark_submit_log = lambda lines: read(self._follow(lines))
        hook._build_spark_submit_command = lambda application: [*_gate(), *build(application)]
        hook.submit = partial(
            hook.submit,
            env=dict(environment),
            stdin=subprocess.PIPE,
            start_new_session=True,
            errors="replace",
        )

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` while it runs or was never started."""
        process = self._hook._submit_sp
        return process.returncode if process else None

    @property
    def lives(self) -> bool:
        """Whether something of it may be alive on this host."""
        return self._hook._submit_sp is not None and not self.ended

    @property
    def ended(self) -> bool:
        """Whether it was started, and nothing of it is alive on this host."""
        return self.exit_code is not None and not _marked(self._identity)

    def end(self) -> bool:
        """End it, and see it end, within ``LONGEST_END_S``; ``False`` if it was not running.

        A wrapper may have put it into a session of its own: both are ended at once.
        """
        process = self._hook._submit_sp
        return process is not None and end_session(process, self._identity)

    def _follow(self, lines: Iterator[str]) -> Iterator[str]:
        self._open_gate()
        threading.Thread(target=self._end_orphans, daemon=True).start()
        known = 0
        for line in lines:
            if self._killed.is_set():  # the kill came while the driver was being started
                self.end()
            self._follower.log.feed(line)
            yield line
            for instant in self._follower.log.own_instants[known:]:
                known += 1
                self._follower.on_instant(instant)
            self._follower.on_line(line)
        self.log_read = True

    def _open_gate(self) -> None:
        process = self._hook._submit_sp
        self._follower.on_start(DriverProcess.of(process.pid))
        if self._killed.is_set():
            self.end()
        with contextlib.suppress(BrokenPipeError):  # it ended before: its log says why
            process.stdin.write("\n")
            process.stdin.close()

    def _end_orphans(self) -> None:
        """End what outlives a killed JVM: it holds the log open, and can commit nothing any more."""
        process = self._hook._submit_sp
        process.wait()
        deadline = time.monotonic() + _ORPHAN_GRACE_S
        while time.monotonic() < deadline and _session_of(process.pid):
            time.sleep(_POLL_S * 10)
        _signal(_session_of(process.pid), signal.SIGKILL)


def end_session(driver: subprocess.Popen[str], identity: str = "") -> bool:
    """End a driver and all processes of its session, and see them end.

    First SIGTERM, so that Spark removes its scratch folders, then SIGKILL: ``LONGEST_END_S`` at most,
    since Airflow kills a task 5 seconds after it asked it to stop.

    :param driver: the driver, started with ``start_new_session=True``.
    :param identity: of the task run: processes that carry it are ended too, whatever their session.
    :return: whether the driver itself was still running.
    """
    was_running = driver.poll() is None

    def living() -> list[psutil.Process]:
        marked = _marked(identity) if identity else []
        return [*{*_session_of(driver.pid), *marked}]

    _end(living, lambda: driver.poll() is not None)
    return was_running


def end_survivors(identity: str, driver: DriverProcess | None = None) -> tuple[list[int], list[int]]:
    """End every process of this host that belongs to a task run's drivers, and see them end.

    They are known by a variable of their environment, which also a wrapper that puts
    ``spark-submit`` into a session of its own hands on, and by the session of the driver.

    :param identity: of the task run.
    :param driver: the driver's process, if it is one of this host.
    :return: the ids of the processes that were alive, and of those that still are.
    """

    def living() -> list[psutil.Process]:
        session = _session_of(driver.pid) if driver and driver.has_its_id() else []
        return [*{*_marked(identity), *session}]

    found: set[int] = set()
    for _ in range(_LOOKS):
        found |= {process.pid for process in living()}
        _end(living)
        time.sleep(_POLL_S)
    return sorted(found), [process.pid for process in living()]


def _gate() -> list[str]:
    return [sys.executable, "-I", gate.__file__, str(os.getpid())]


def _end(living: Callable[[], list[psutil.Process]], reaped: Callable[[], bool] = lambda: True) -> None:
    started = time.monotonic()
    _signal(living(), signal.SIGTERM)
    while time.monotonic() < started + _TERM_GRACE_S and (not reaped() or living()):
        time.sleep(_POLL_S)
    quiet = 0  # a process that is just becoming another program shows no environment
    while time.monotonic() < started + LONGEST_END_S and quiet < _LOOKS:
        left = living()
        _signal(left, signal.SIGKILL)
        quiet = 0 if left or not reaped() else quiet + 1
        time.sleep(_POLL_S)


def _session_of(leader: int) -> list[psutil.Process]:
    """Return the living processes of a session; PySpark's workers leave the driver's group."""
    return _living(lambda process: os.getsid(process.pid) == leader)


def _marked(identity: str) -> list[psutil.Process]:
    return _living(lambda process: process.environ().get(IDENTITY_VARIABLE) == identity)


def _living(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if wanted(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
