"""Ends a Spark driver that runs on this host, with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess

_GRACE_S = 1.5
_REAP_S = 2.0


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
