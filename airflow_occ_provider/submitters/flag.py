"""A request that a signal handler may make."""

from __future__ import annotations


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
