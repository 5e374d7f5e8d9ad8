"""A view of Hudi's own commit lock, wherever that is: who holds it, who waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LockSeat:
    """One who holds the lock, or waits for it.

    :param number: his place: who came later has a greater one.
    :param who: what the lock tells of him, empty for nothing.
    :param since_ms: epoch milliseconds by the lock service's clock at which he came, or in a metastore
        got it; ``None`` where nobody writes that down. In ZooKeeper the holder may have waited before.
    :param holds: whether he has the lock.
    """

    number: int
    who: str
    since_ms: int | None
    holds: bool


class CommitLock(Protocol):
    """Hudi's lock of one table. It makes and changes nothing.

    Each method raises ``LockUnreachableError`` where the lock service does not answer in time, and
    ``ConfigurationError`` where it refuses.
    """

    path: str
    """Where the lock is, in the lock service's own words."""

    def seats(self) -> tuple[LockSeat, ...]:
        """Return who has the lock and who waits for it, the holder first."""

    def times_taken(self) -> int | None:
        """Return how often somebody has come for the lock; ``None`` where nobody counts."""

    def close(self) -> None:
        """End the session."""
