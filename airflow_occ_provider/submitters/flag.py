"""What a signal handler may do, whatever code it has interrupted."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable

_LOOK_S = 0.02


class Flag:
    """A request that a signal handler may make: unlike an event, it takes no lock.

    An operator that holds one can be copied and pickled.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Make the request."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether the request was made."""
        return self._is_set


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
