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
