"""Suspends processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.observed import until


def suspend(*pids: int) -> None:
    """Suspend processes, and return when none of their threads runs any more.

    On a busy machine threads go on for a while after the signal was sent, and answer calls.
    """
    _send(pids, signal.SIGSTOP)
    until(lambda: not any(map(_runs, pids)), f"{pids} were not suspended")


def resume(*pids: int) -> None:
    """Let suspended processes go on."""
    _send(pids, signal.SIGCONT)


@contextmanager
def suspended(*pids: int) -> Iterator[None]:
    """Suspend processes for the time of a ``with`` block."""
    suspend(*pids)
    try:
        yield
    finally:
        resume(*pids)


def _send(pids: tuple[int, ...], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def _runs(pid: int) -> bool:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "TtZX":
                return True
    return False
