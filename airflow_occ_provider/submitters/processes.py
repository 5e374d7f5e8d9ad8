"""Finds and ends the processes of a driver on this host."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import partial

import psutil

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE

_TERM_GRACE_S = 1.5
_KILL_GRACE_S = 2.0
LONGEST_END_S = _TERM_GRACE_S + _KILL_GRACE_S
_POLL_S = 0.02
_LOOKS = 3


def processes_of(identity: str, session: int | None = None) -> list[psutil.Process]:
    """Return the living processes of a task run's drivers on this host.

    They are identified by a variable of their environment, which also a wrapper that starts
    ``spark-submit`` in another session passes on, and by the session of a driver: PySpark's workers
    leave its process group.

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
