"""Collects the answers that all clients get, and reports those that contradict each other.

It states the rules again, so that it shares no mistake with the queue.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.rules import Request

# The share of the timeout on which an owner relies.
TRUSTED = 0.9


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass
class Claim:
    """A request, and the clock before its last renewal."""

    asked: Request
    ticket: Ticket | None = None
    renewed_s: float = field(default_factory=time.monotonic)

    @property
    def place(self) -> Ticket:
        """The ticket that is valid now."""
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

    def run_checked(self, do: Callable[[], None]) -> None:
        """Run a thread's work, and keep its error."""
        try:
            do()
        except Exception as error:  # noqa: BLE001 - a thread's failure is the run's
            self._failures.append(error)

    @property
    def has_failed(self) -> bool:
        """Whether a promise was broken."""
        return bool(self._failures)

    def raise_first(self) -> None:
        """Raise the first error of a thread, if there is one."""
        if self._failures:
            raise self._failures[0]

    def on_held(self, claim: Claim) -> None:
        """Check the answer; the client holds until it releases or its term ends."""
        with self._mutex:
            now, mine = time.monotonic(), (claim.order, claim.asked)
            for other in self._holders:
                is_fresh = now < other.renewed_s + self._timeout_s * TRUSTED
                if is_fresh and _exclude(mine, (other.order, other.asked)):
                    raise ViolationError(f"both hold: {claim} and {other}")
            if claim.asked.id not in self._granted:
                for before in self._granted.values():
                    if before[0] > mine[0] and _exclude(mine, before):
                        raise ViolationError(f"{claim} is granted after the later {before}")
                self._granted[claim.asked.id] = mine
                self.counts["granted"] += 1
            if claim not in self._holders:
                self._holders.append(claim)

    def on_blocked(self, claim: Claim) -> None:
        self.counts["let wait"] += 1
        with self._mutex:
            is_fresh = time.monotonic() < claim.renewed_s + self._timeout_s * TRUSTED
            if is_fresh and any(one is claim for one in self._holders):
                raise ViolationError(f"{claim} was reported held, and waits now")

    def on_lost(self, claim: Claim) -> None:
        """Check that the lost claim was not renewed in time."""
        stood_s = time.monotonic() - claim.renewed_s
        if stood_s < self._timeout_s * TRUSTED:
            raise ViolationError(f"{claim} is lost {stood_s:.2f} s after a heartbeat")
        self.counts["lost in time"] += 1
        self.on_left(claim)

    def on_left(self, claim: Claim) -> None:
        """Forget a holder; called before it releases."""
        with self._mutex:
            self._holders = [one for one in self._holders if one is not claim]


def _exclude(one: tuple[tuple[int, ...], Request], other: tuple[tuple[int, ...], Request]) -> bool:
    """Whether they may not both hold: they conflict, and the later did not pass under the earlier."""
    (earlier, theirs), (later, ours) = sorted((one, other), key=lambda pair: pair[0])
    if later[: len(earlier)] == earlier:
        return False
    return any(
        mine.table == rival.table
        and "exclusive" in (mine.mode, rival.mode)
        and (
            None in (mine.partitions, rival.partitions)
            or any(
                f"{path}/".startswith(f"{over}/") or f"{over}/".startswith(f"{path}/")
                for path in mine.partitions or ()
                for over in rival.partitions or ()
            )
        )
        for mine in ours.scopes
        for rival in theirs.scopes
    )
