"""Calls that a signal handler may make, whatever code it has interrupted."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable

from airflow_occ_provider.submitters.flag import Flag

_LOOK_S = 0.02


def call_apart(call: Callable[[], object], longest_s: float) -> None:
    """Make a call in another thread, and wait for it for a while.

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
    deadline = time.monotonic() + longest_s
    while not done.is_set() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
