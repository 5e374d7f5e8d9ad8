"""A flag that a signal handler may set."""

from __future__ import annotations


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
