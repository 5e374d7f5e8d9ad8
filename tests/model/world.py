"""Clients, each a queue with its own clock, in virtual time on one store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_occ_provider.errors import LeaseLostError, LeaseRefusedError, LockUnreachableError
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Request
from airflow_occ_provider.leases.store import Store
from tests.model.checker import SLACK, Checker, Entry, ViolationError
from tests.model.follower import Follower
from tests.model.wire import KilledError, Wire
from tests.support.memory_store import MemoryStore

TICK_S = 0.5
_AGE_S = 1.1  # of the listings of one client
RATES = (1.0, 0.97, 1.03, 0.96, 1.04)
_LOST, _UNREACHABLE, _REFUSED, _DEAD = (object() for _ in range(4))
NO_ANSWER = (_UNREACHABLE, _DEAD)


@dataclass(eq=False)
class Client:
    number: int
    wire: Wire
    queue: Queue
    paused_until: float = 0.0
    busy: bool = False


@dataclass(eq=False)
class Claim:
    """A request and the client that keeps it; ``keeper`` is ``None`` once that client died."""

    asked: Request
    keeper: Client | None
    ticket: Ticket | None = None
    held: bool = False
    polled: float = 0.0
    waited: float = 0.0
    polling_since: float | None = None
    extra_polls: bool = False
    woken: bool = False

    @property
    def period_s(self) -> float:
        return self.asked.ttl_ms / 1000 / 3


class World:
    """The clients, the store and the time that the state machine drives.

    :param stores: one for each client, of the same nodes; ``None`` for memory.
    :param queue: the class under test.
    """

    def __init__(
        self, counts: Counter[str], stores: Sequence[Store] | None = None, queue: type[Queue] = Queue
    ) -> None:
        self.now = 0.0
        self.server_ms = 1_700_000_000_000
        self.counts = counts
        self.checker = Checker(lambda: self.now, counts)
        self.claims: list[Claim] = []
        self.zombies: list[tuple[Client, Queue, Ticket]] = []
        self.older: list[Request] = []  # of tries after which a later one made its request
        memory = MemoryStore(lambda: self.server_ms)
        self._line = queue
        self.followers = [] if stores else [Follower(memory) for _ in range(4)]
        self._stores: Sequence[Store] = stores or self.followers
        self._born = 0
        self.is_away = False
        self.clients = [self._new(number) for number in range(len(self._stores))]

    # Single steps.

    def request(self, claim: Claim) -> None:
        client = claim.keeper
        assert client
        asked = claim.asked
        answer = self._call(client, "request", asked, lambda: client.queue.request(asked))
        if isinstance(answer, Ticket):
            claim.ticket, claim.held = answer, False
        elif answer is _REFUSED:
            self.checker.on_refused(client.wire.client, asked)
            self._drop(claim)

    def status(self, claim: Claim, *, extra: bool = True) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        claim.woken = False
        wake = partial(setattr, claim, "woken", True) if extra else None
        began, age_s = self.now, (client.number % 4 == 1) * _AGE_S
        answer = self._call(
            client, "status", ticket, lambda: client.queue.status(ticket, wake, age_s=age_s)
        )
        if answer is _LOST:
            self.checker.on_lost(ticket)
            self._drop(claim)
        elif isinstance(answer, Status) and answer.held:
            self.checker.on_held(client.wire.client, ticket)
            claim.held = True
        elif isinstance(answer, Status):
            names = [blocker.queued.name for blocker in answer.blockers]
            there = self.checker.on_blocked(client.wire.client, ticket, names)
            self._waits(claim, there, smooth=self.now == began, extra=extra)
        else:
            claim.polling_since = None

    def renew(self, claim: Claim, factor: int = 1) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        ttl_ms = factor * claim.asked.ttl_ms if factor > 1 else None
        before = self.checker.owned(ticket.name)
        answer = self._call(client, "renew", ticket, lambda: client.queue.renew(ticket, ttl_ms))
        if answer is _LOST:
            self.checker.on_lost(ticket)
            self._drop(claim)
        elif answer not in NO_ANSWER:
            self.checker.on_done(ticket, before)
            self._sweep(claim, client, ticket)

    def _sweep(self, claim: Claim, client: Client, ticket: Ticket) -> None:
        if self._call(client, "sweep", ticket, lambda: client.queue.sweep(ticket)) is _LOST:
            self.checker.on_lost(ticket)
            self._drop(claim)

    def ensure_held(self, claim: Claim) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        before = self.checker.owned(ticket.name)
        answer = self._call(client, "ensure_held", ticket, lambda: client.queue.ensure_held(ticket))
        if answer is _LOST and claim.held:
            self.checker.on_lost(ticket)
            self._drop(claim)
        elif answer is None:
            self.checker.on_done(ticket, before)
            self.checker.on_held(client.wire.client, ticket)
            claim.held = True

    def adopt(self, claim: Claim, client: Client) -> None:
        ticket, old = claim.ticket, claim.keeper
        assert ticket
        before = self.checker.owned(ticket.name)
        answer = self._call(client, "adopt", ticket, lambda: client.queue.adopt(ticket))
        if isinstance(answer, Ticket):
            self.checker.on_done(ticket, before, again_by=client.wire.client)
            if old and old is not client:
                self.zombies.append((old, old.queue, ticket))
            claim.keeper, claim.ticket, claim.polling_since = client, answer, None
        elif answer is _LOST:
            self.checker.on_lost(ticket)
            self._drop(claim)

    def release(self, claim: Claim) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        answer = self._call(client, "release", ticket, lambda: client.queue.release(ticket))
        if answer in {True, False}:
            self.checker.on_released(ticket, was_there=answer)
            self._drop(claim)

    def zombie(self, number: int, what: str) -> None:
        """Have a process continue with a ticket that another one has adopted."""
        client, queue, ticket = self.zombies[number % len(self.zombies)]
        if client.queue is not queue or not self.acts(client):
            return
        before = self.checker.owned(ticket.name)
        answer = self._call(client, what, ticket, lambda: getattr(queue, what)(ticket))
        if what in {"renew", "ensure_held", "adopt"} and answer not in (_LOST, *NO_ANSWER):
            again_by = client.wire.client if what == "adopt" else None
            self.checker.on_done(ticket, before, again_by)
        if isinstance(answer, Status) and answer.held:
            self.checker.on_held(client.wire.client, ticket)

    def kill(self, client: Client) -> None:
        """Kill its process at once, and start another one without its state."""
        for claim in self.claims:
            if claim.keeper is client:
                claim.keeper, claim.polling_since = None, None
        self.claims = [claim for claim in self.claims if claim.keeper or claim.ticket]
        fresh = self._new(client.number)
        client.queue, client.wire, client.paused_until = fresh.queue, fresh.wire, 0.0

    # Time.

    def acts(self, client: Client | None) -> bool:
        return client is not None and not client.busy and client.paused_until <= self.now

    def pass_time(self, ticks: int) -> None:
        """Let time pass; each running client renews and reads its status once a period."""
        for _ in range(ticks):
            self.now += TICK_S
            for claim in list(self.claims):
                due = claim.woken or self.now - claim.polled >= claim.period_s
                if due and claim in self.claims and self.acts(claim.keeper):
                    self._tend(claim)

    def fall_behind(self, number: int) -> None:
        """Let one client's server lag: for now it sees nothing but that client's changes."""
        if self.followers:
            self.followers[number % len(self.followers)].fall_behind()

    def be_away(self, ticks: int) -> None:
        """Let the store answer no client for a time, in which all clients retry."""
        began_s = self.now
        self._reach(False)
        self.pass_time(ticks)
        self._reach(True)
        self.checker.away.append((began_s, self.now))

    def _reach(self, reachable: bool) -> None:
        self.is_away = not reachable
        for client in self.clients:
            client.wire.is_away = self.is_away

    def come_to_an_end(self) -> None:
        """End the faults, and check that each running client is granted once the holders leave."""
        self.zombies.clear()
        for follower in self.followers:
            follower.catch_up()
        for client in self.clients:
            client.wire.arm(None)
            client.paused_until = 0.0
        self.pass_time(4)
        if any(claim.keeper is None for claim in self.claims) or self._strangers():
            self.claims = [claim for claim in self.claims if claim.keeper]
            self.pass_time(round((18 * SLACK + 4) / TICK_S) + 1)
        while self.claims:
            held = [claim for claim in self.claims if claim.held]
            if not held:
                raise ViolationError(f"no claim is granted: {[claim.ticket for claim in self.claims]}")
            for claim in held:
                self.release(claim)
            for claim in list(self.claims):
                self._tend(claim)

    def _tend(self, claim: Claim) -> None:
        woken, client = claim.woken, claim.keeper
        if self.now - claim.polled >= claim.period_s:
            claim.polled = self.now
        if claim.ticket is None:
            self.request(claim)
        else:
            self.renew(claim)
        if claim.ticket and claim in self.claims and not claim.held and claim.keeper is client:
            self.status(claim, extra=woken)

    def _waits(self, claim: Claim, there: list[Entry], *, smooth: bool, extra: bool) -> None:
        """Check that a waiter that polls regularly does not wait too long for a dead request."""
        claim.extra_polls |= extra
        late = self.now - claim.waited > claim.period_s
        claim.waited = self.now
        if claim.polling_since is None or late or not smooth:
            claim.polling_since, claim.extra_polls = (self.now if smooth else None), extra
            return
        for earlier in there:
            waited_s = self.now - max(earlier.written_s, claim.polling_since)
            # An extra poll delays the regular one by half a period, once at each end.
            periods = 3 if claim.extra_polls else 2
            # Between two polls at most one renewal period of the earlier request counts.
            counted_s = min(claim.period_s * min(RATES), earlier.ttl_s / 3)
            polling_s = (earlier.term_s * 1.02 // counted_s + 1) * claim.period_s
            if waited_s > max(earlier.term_s * SLACK, polling_s) + periods * claim.period_s:
                raise ViolationError(f"{claim.ticket} waits {waited_s} s for a dead {earlier}")

    def _strangers(self) -> bool:
        kept = {claim.ticket.name for claim in self.claims if claim.ticket}
        return bool(self.checker.nodes.keys() - kept)

    def _call(self, client: Client, kind: str, by: object, do: Callable[[], Any]) -> Any:
        client.wire.begin((kind, by))
        client.busy, began = True, self.now
        try:
            return do()
        except LeaseLostError:
            return _LOST
        except LockUnreachableError:
            self.counts["no answer"] += 1
            self._restart_polling(client)
            return _UNREACHABLE
        except LeaseRefusedError:
            return _REFUSED
        except KilledError:
            self.kill(client)
            return _DEAD
        finally:
            client.busy = False
            if self.now != began:
                self._restart_polling(client)

    def _restart_polling(self, client: Client) -> None:
        """Restart the regular polls: a call that failed or took long saw nothing of the others."""
        for claim in self.claims:
            if claim.keeper is client:
                claim.polling_since = None

    def _drop(self, claim: Claim) -> None:
        self.claims = [one for one in self.claims if one is not claim]

    def _new(self, number: int) -> Client:
        rate, self._born = RATES[self._born % len(RATES)], self._born + 1
        start = 1000.0 * self._born
        wire = Wire(self._stores[number], self.checker, (number, self._born))
        wire.is_away = self.is_away
        return Client(number, wire, self._line(wire, lambda: start + rate * self.now))
