"""Finds and ends the processes of a driver on this host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.submitters.driver_process import DriverProcess

_TERM_GRACE_S = 1.5
_KILL_GRACE_S = 2.0
LONGEST_END_S = _TERM_GRACE_S + _KILL_GRACE_S
_POLL_S = 0.02
_LOOKS = 3


def end_session(driver: subprocess.Popen[Any], identity: str = "") -> bool:
    """End a driver and all processes of its session, and wait for their end.

    First SIGTERM, so that Spark removes its scratch folders, then SIGKILL; within ``LONGEST_END_S``,
    since Airflow kills a task 5 seconds after its request to stop.

    :param driver: the driver, started with ``start_new_session=True``.
    :param identity: of the task run: processes that carry it are also ended, in any session.
    :return: whether the driver itself was still running.
    """
    was_running = driver.poll() is None

    def living() -> list[psutil.Process]:
        return _living(lambda one: _in_session(one, driver.pid) or _is_marked(one, identity))

    _end(living, lambda: driver.poll() is not None)
    return was_running


def end_survivors(identity: str, driver: DriverProcess | None = None) -> tuple[list[int], list[int]]:
    """End every process of a task run's drivers on this host, and wait for their end.

    They are identified by a variable of their environment, which also a wrapper that starts
    ``spark-submit`` in another session passes on, and by the session of the driver.

    :param driver: the driver's process, if it is one of this host.
    :return: the ids of the processes that were alive, and of those that are still alive.
    """

    def living() -> list[psutil.Process]:
        leader = driver.pid if driver and driver.has_its_id() else None
        return _living(lambda one: _in_session(one, leader) or _is_marked(one, identity))

    found: set[int] = set()
    for _ in range(_LOOKS):
        found |= {process.pid for process in living()}
        _end(living)
        time.sleep(_POLL_S)
    return sorted(found), [process.pid for process in living()]


def _end(living: Callable[[], list[psutil.Process]], reaped: Callable[[], bool] = lambda: True) -> None:
    started, left = time.monotonic(), living()
    send(left, signal.SIGTERM)
    asked = time.monotonic()
    while (left or not reaped()) and time.monotonic() < asked + _TERM_GRACE_S:
        time.sleep(_POLL_S)
        left = living()
    quiet = 0  # a process shows no environment during its exec
    while time.monotonic() < started + LONGEST_END_S:
        send(left, signal.SIGKILL)
        quiet = 0 if left or not reaped() else quiet + 1
        if quiet == _LOOKS:
            return
        time.sleep(_POLL_S)
        left = living()


def session_of(leader: int) -> list[psutil.Process]:
    """Return the living processes of a session.

    The session is used since PySpark's workers leave the driver's process group.
    """
    return _living(lambda process: _in_session(process, leader))


def marked(identity: str) -> list[psutil.Process]:
    """Return the living processes with a task run's identity in their environment."""
    return _living(lambda process: _is_marked(process, identity))


def _in_session(process: psutil.Process, leader: int | None) -> bool:
    return os.getsid(process.pid) == leader


def _is_marked(process: psutil.Process, identity: str) -> bool:
    return bool(identity) and process.environ().get(IDENTITY_VARIABLE, "").startswith(identity)


def _living(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if wanted(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to processes; skip those that have ended."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
