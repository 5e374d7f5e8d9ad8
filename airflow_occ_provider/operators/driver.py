"""A Spark driver on this host: followed while it runs, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import psutil

from airflow_occ_provider.jobs.outcome import DriverLog

_TERM_GRACE_S = 1.5
_KILL_GRACE_S = 2.0
_ORPHAN_GRACE_S = 10.0
_POLL_S = 0.05


class ClientDriver:
    """The driver that a ``SparkSubmitHook`` starts in client mode.

    :param hook: the hook; its ``submit`` and its reading of the log are extended in place.
    :param log: reads every line that the driver writes.
    :param environment: environment of the driver.
    :param killed: set when the task was asked to stop.
    :param on_instant: called with the requested time of each write that the driver asks for.
    """

    def __init__(
        self,
        hook: Any,
        log: DriverLog,
        environment: Mapping[str, str],
        killed: threading.Event,
        on_instant: Callable[[str], None],
    ) -> None:
        self._hook = hook
        self._log = log
        self._killed = killed
        self._on_instant = on_instant
        read = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda lines: read(self._follow(lines))
        hook.submit = partial(
            hook.submit, env=dict(environment), start_new_session=True, errors="replace"
        )

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` while it runs or was never started."""
        process = self._hook._submit_sp
        return process.returncode if process else None

    def end(self) -> bool:
        """End it, and see it end; ``False`` if it was not running."""
        process = self._hook._submit_sp
        return process is not None and end_session(process)

    def _follow(self, lines: Iterator[str]) -> Iterator[str]:
        threading.Thread(target=self._end_orphans, daemon=True).start()
        known = 0
        for line in lines:
            if self._killed.is_set():  # the kill came while the driver was being started
                self.end()
            self._log.feed(line)
            yield line
            for instant in self._log.own_instants[known:]:
                known += 1
                self._on_instant(instant)

    def _end_orphans(self) -> None:
        """End what outlives a killed JVM: it holds the log open, and can commit nothing any more."""
        process = self._hook._submit_sp
        process.wait()
        deadline = time.monotonic() + _ORPHAN_GRACE_S
        while time.monotonic() < deadline and _session_of(process.pid):
            time.sleep(_POLL_S * 10)
        _signal(_session_of(process.pid), signal.SIGKILL)


def end_session(driver: subprocess.Popen[str]) -> bool:
    """End a driver and all processes of its session, and see them end.

    First SIGTERM, so that Spark removes its scratch folders, then SIGKILL: 3.5 seconds at most,
    since Airflow kills a task 5 seconds after it asked it to stop.

    :param driver: the driver, started with ``start_new_session=True``.
    :return: whether the driver itself was still running.
    """
    was_running = driver.poll() is None
    for number, grace_s in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _KILL_GRACE_S)):
        left = _session_of(driver.pid)
        _signal(left, number)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline and (driver.poll() is None or _session_of(driver.pid)):
            time.sleep(_POLL_S)
    return was_running


def _session_of(leader: int) -> list[psutil.Process]:
    """Return the living processes of a session; PySpark's workers leave the driver's group."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
