"""A Spark driver on this host: followed while it runs, and ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from airflow_occ_provider.jobs.outcome import DriverLog

_GRACE_S = 1.5
_REAP_S = 2.0


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
        hook.submit = partial(hook.submit, env=dict(environment), process_group=0)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` while it runs or was never started."""
        process = self._hook._submit_sp
        return process.returncode if process else None

    def end(self) -> bool:
        """End it, and see it end; ``False`` if it was not running."""
        process = self._hook._submit_sp
        return process is not None and end_process_group(process)

    def _follow(self, lines: Iterator[str]) -> Iterator[str]:
        known = 0
        for line in lines:
            if self._killed.is_set():  # the kill came while the driver was being started
                self.end()
            self._log.feed(line)
            yield line
            for instant in self._log.own_instants[known:]:
                known += 1
                self._on_instant(instant)


def end_process_group(process: subprocess.Popen[str]) -> bool:
    """End the process group that a driver leads, and see it end.

    First SIGTERM, so that Spark removes its scratch folders, then SIGKILL: 3.5 seconds at most,
    since Airflow kills a task 5 seconds after it asked it to stop.

    :param process: the driver, started with ``process_group=0``.
    :return: whether anything was still running.
    """
    was_running = process.poll() is None
    if was_running and _signal(process.pid, signal.SIGTERM):
        _wait(process, _GRACE_S)
    if process.returncode != 0:  # the Python process may outlive a JVM that was killed
        _signal(process.pid, signal.SIGKILL)
        _wait(process, _REAP_S)
    return was_running


def _signal(group: int, number: signal.Signals) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _wait(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
