"""One of many clients: requests leases, waits, holds, passes them on, and releases or abandons them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from tests.crowd.witness import Claim, ViolationError, Witness

_T = TypeVar("_T")
A, B = "s3://lake/a", "s3://lake/b"
SCOPES = (
    (Scope.of(A, None, Mode.SHARED),),
    (Scope.of(A, None),),
    (Scope.of(A, ["p=1"]),),
    (Scope.of(A, ["p=1/q=1"]),),
    (Scope.of(A, ["p=1/q=2", "p=2"]),),
    (Scope.of(B, ["p=1"]),),
    (Scope.of(A, None, Mode.SHARED), Scope.of(B, ["p=1"])),
    (Scope.of(B, None), Scope.of(A, ["p=2"])),
)
_LONGEST_HOLD_S = 0.03
_END_S = 60.0


class Client:
    """A task run with several processes, which have its lease one after the other.

    :param name: its run.
    :param processes: a queue each.
    :param ttl_s: seconds without a renewal after which a request expires.
    :param witness: checks each answer.
    """

    def __init__(
        self,
        name: str,
        processes: Sequence[Queue],
        ttl_s: float,
        witness: Witness,
        seed: int,
    ) -> None:
        self.name = name
        self._processes = processes
        self._ttl_s = ttl_s
        self._witness = witness
        self._random = random.Random(f"{seed}-{name}")
        self._asked = 0

    def work(self, until_s: float) -> None:
        """Request and use leases until a moment of the monotonic clock."""
        while time.monotonic() < until_s and not self._witness.has_failed:
            self._use_lease(Owner(("dag", f"{self.name}.{self._asked}"), "asks"), self._any(SCOPES))

    def _use_lease(self, owner: Owner, scopes: tuple[Scope, ...], depth: int = 0) -> None:
        self._asked += 1
        claim = Claim(Request(f"{self.name}.{self._asked}", owner, scopes, round(self._ttl_s * 1000)))
        try:
            service = self._request(claim)
            service = self._wait(claim, service)
            if service and depth == 0 and self._chance(0.4):
                service = self._work_below(claim, service, owner, scopes)
            if service:
                self._work(claim, service)
        except LeaseLostError:
            self._witness.on_lost(claim)

    def _request(self, claim: Claim) -> Queue:
        service = self._any(self._processes)
        claim.ticket = self._again(claim, lambda: service.request(claim.asked))
        return service

    def _wait(self, claim: Claim, service: Queue) -> Queue | None:
        """Poll until the claim holds; return ``None`` if it was released before."""
        woken, deadline = threading.Event(), time.monotonic() + _END_S
        while not self._is_held(claim, service, woken):
            if time.monotonic() > deadline:
                raise ViolationError(f"{claim} waits forever")
            if self._chance(0.03):
                return self._leave(claim, service)
            service = self._pass_on(claim, service)
            woken.wait(self._ttl_s / 6)
            woken.clear()
        return service

    def _is_held(self, claim: Claim, service: Queue, woken: threading.Event) -> bool:
        ticket = claim.place
        # An answer is no heartbeat: the request is renewed for it only if it is about to expire.
        if self._again(None, lambda: service.status(ticket, woken.set)).held:
            self._witness.on_held(claim)
            return True
        self._witness.on_blocked(claim)
        return False

    def _work(self, claim: Claim, service: Queue) -> None:
        for _ in range(self._random.randrange(3)):
            time.sleep(self._random.uniform(0, _LONGEST_HOLD_S))
            service = self._pass_on(claim, service)
            self._again(claim, lambda service=service: service.ensure_held(claim.place))
            self._witness.on_held(claim)
        self._leave(claim, service)

    def _work_below(
        self, lease: Claim, service: Queue, owner: Owner, scopes: tuple[Scope, ...]
    ) -> Queue | None:
        """Let a task work under the lease, which may end while the task waits or holds."""
        task = Owner((*owner.path, "task"))
        if self._chance(0.5):
            self._use_lease(task, scopes, 1)
            return service
        below = threading.Thread(
            target=self._witness.run_checked, args=(lambda: self._use_lease(task, scopes, 1),)
        )
        below.start()
        time.sleep(self._random.uniform(0, _LONGEST_HOLD_S))
        self._leave(lease, service)
        below.join(2 * _END_S)
        return None

    def _pass_on(self, claim: Claim, service: Queue) -> Queue:
        """Continue here, or in another process; then check that this one is refused."""
        old, renewed_s = claim.place, claim.renewed_s
        fate = self._random.random()
        if fate < 0.3:
            self._again(claim, lambda: service.renew(old))
        if fate < 0.8:
            return service
        others = [one for one in self._processes if one is not service]
        other = self._any(others)
        if fate < 0.87:
            claim.ticket = self._again(claim, lambda: other.adopt(old))
        elif fate < 0.94:
            claim.ticket = self._again(claim, lambda: other.request(claim.asked))
        else:
            other, claim.ticket = self._adopted_at_once(claim, others)
        if claim.ticket.name != old.name:
            claim.renewed_s = renewed_s  # the new request renewed nothing of the lost one
            raise LeaseLostError("it was removed, and is queued again")
        self._witness.counts["passed on"] += 1
        self._refuse(claim, service, old)
        return other

    def _adopted_at_once(self, claim: Claim, others: Sequence[Queue]) -> tuple[Queue, Ticket]:
        """Have all other processes adopt it at the same moment; one may succeed."""
        old, taken, lost = claim.place, [], []

        def adopt(one: Queue) -> None:
            try:
                taken.append((one, self._again(claim, lambda: one.adopt(old))))
            except LeaseLostError as error:
                lost.append(error)

        threads = [
            threading.Thread(target=self._witness.run_checked, args=(lambda one=one: adopt(one),))
            for one in others
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_END_S)
        self._witness.counts["adopted at once"] += 1
        if len(taken) > 1:
            raise ViolationError(f"two processes have adopted {taken}")
        if not taken:
            raise lost[0]
        return taken[0]

    def _refuse(self, claim: Claim, service: Queue, old: object) -> None:
        """Check that the process that had the lease is refused.

        Its status is that of its own term, in which it may rely on what it wrote last.
        """
        call = self._any(["renew", "ensure_held", "adopt", "release"])
        with suppress(LeaseLostError):
            if self._again(None, lambda: getattr(service, call)(old)) is not False:
                raise ViolationError(f"{call} of a zombie's {old} beside {claim}")
        self._witness.counts["zombies refused"] += 1

    def _leave(self, claim: Claim, service: Queue) -> None:
        ticket = claim.place
        self._witness.on_left(claim)
        if self._chance(0.02):
            self._witness.counts["abandoned"] += 1
            return
        self._again(None, lambda: service.release(ticket))
        self._witness.counts["released"] += 1

    def _again(self, claim: Claim | None, do: Callable[[], _T]) -> _T:
        """Call until there is an answer: each method may be repeated."""
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            began_s = time.monotonic()
            with suppress(LockUnreachableError):
                answer = do()
                if claim:
                    claim.renewed_s = began_s
                return answer
        raise ViolationError(f"no answer in {_END_S} s")

    def _any(self, among: Sequence[_T]) -> _T:
        return self._random.choice(among)

    def _chance(self, odds: float) -> bool:
        return self._random.random() < odds
