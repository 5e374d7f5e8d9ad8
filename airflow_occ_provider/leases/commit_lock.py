"""The view of Hudi's own commit lock: its holder and its waiters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LockEntry:
    """The holder of the lock, or a waiter.

    :param number: its position: greater for a later request.
    :param owner: what the lock records about its owner; empty if nothing.
    :param since_ms: epoch milliseconds by the lock service's clock: in ZooKeeper when it requested the
        lock, in a metastore when it acquired the lock; ``None`` if that is not recorded.
    :param held: whether it holds the lock.
    """

    number: int
    owner: str
    since_ms: int | None
    held: bool


class CommitLock(Protocol):
    """A read-only view of Hudi's lock of one table.

    Each method raises ``LockUnreachableError`` if the lock service does not answer in time, and
    ``ConfigurationError`` if it denies access.
    """

    path: str
    """The lock's path or name in the lock service."""

    def entries(self) -> tuple[LockEntry, ...]:
        """Return the holder and the waiters, the holder first."""

    def times_requested(self) -> int | None:
        """Return how often the lock was requested; ``None`` if that is not counted."""

    def counted_since_ms(self) -> int | None:
        """Return since when all requests are counted, in epoch milliseconds.

        :returns: ``None`` if unknown.
        """

    def close(self) -> None:
        """Close the session."""
