"""Hears what everybody was told of his lease, and says where two cannot both be right.

It states the rules anew, so that it shares no mistake with the line.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.rules import Request

# How much of the time-out an owner trusts in.
TRUSTED = 0.9


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass
class Claim:
    """A request, and the clock before it was last shown to live."""

    asked: Request
    ticket: Ticket | None = None
    renewed_s: float = field(default_factory=time.monotonic)

    @property
    def place(self) -> Ticket:
        """The ticket that is good now."""
        assert self.ticket
        return self.ticket

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(map(int, self.place.order_token.split(".")))


class Witness:
    def __init__(self, timeout_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self._failures: list[Exception] = []
        self._timeout_s = timeout_s
        self._mutex = threading.Lock()
        self._holders: list[Claim] = []
        self._granted: dict[str, tuple[tuple[int, ...], Request]] = {}

    def hears(self, do: Callable[[], None]) -> None:
        """Run what a thread does, and keep what it fails with."""
        try:
            do()
        except Exception as error:  # noqa: BLE001 - a thread's failure is the run's
            self._failures.append(error)

    @property
    def has_seen_enough(self) -> bool:
        """Whether a promise was broken."""
        return bool(self._failures)

    def told_all(self) -> None:
        """Raise what a thread failed with, the first one's."""
        if self._failures:
            raise self._failures[0]

    def told_held(self, claim: Claim) -> None:
        """Who is told so holds until he lets go, or lets his term pass."""
        with self._mutex:
            now, mine = time.monotonic(), (claim.order, claim.asked)
            for other in self._holders:
                is_fresh = now < other.renewed_s + self._timeout_s * TRUSTED
                if is_fresh and _exclude(mine, (other.order, other.asked)):
                    raise ViolationError(f"both hold: {claim} and {other}")
            if claim.asked.id not in self._granted:
                for before in self._granted.values():
                    if before[0] > mine[0] and _exclude(mine, before):
                        raise ViolationError(f"{claim} is granted after its younger {before}")
                self._granted[claim.asked.id] = mine
                self.counts["granted"] += 1
            if claim not in self._holders:
                self._holders.append(claim)

    def told_blocked(self, claim: Claim) -> None:
        self.counts["let wait"] += 1
        with self._mutex:
            is_fresh = time.monotonic() < claim.renewed_s + self._timeout_s * TRUSTED
            if is_fresh and any(one is claim for one in self._holders):
                raise ViolationError(f"{claim} was told to be held, and waits now")

    def told_lost(self, claim: Claim) -> None:
        """Nobody is removed who renewed in time."""
        stood_s = time.monotonic() - claim.renewed_s
        if stood_s < self._timeout_s * TRUSTED:
            raise ViolationError(f"{claim} is lost {stood_s:.2f} s after a heartbeat")
        self.counts["lost in time"] += 1
        self.left(claim)

    def left(self, claim: Claim) -> None:
        """Called before he lets go."""
        with self._mutex:
            self._holders = [one for one in self._holders if one is not claim]


def _exclude(one: tuple[tuple[int, ...], Request], other: tuple[tuple[int, ...], Request]) -> bool:
    """Whether both may not hold: in conflict, and the younger did not come in under the elder."""
    (elder, theirs), (younger, ours) = sorted((one, other), key=lambda pair: pair[0])
    if younger[: len(elder)] == elder:
        return False
    return any(
        mine.table == his.table
        and "exclusive" in (mine.mode, his.mode)
        and (
            None in (mine.partitions, his.partitions)
            or any(
                f"{path}/".startswith(f"{over}/") or f"{over}/".startswith(f"{path}/")
                for path in mine.partitions or ()
                for over in his.partitions or ()
            )
        )
        for mine in ours.scopes
        for his in theirs.scopes
    )
