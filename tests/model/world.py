"""Clients, each a line with a clock of its own, in virtual time on one store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_occ_provider.errors import LeaseLostError, LeaseRefusedError, LockUnreachableError
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.memory import MemoryNodes
from airflow_occ_provider.leases.nodes import Nodes
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Request
from tests.model.checker import SLACK, Checker, Entry, ViolationError
from tests.model.follower import Follower
from tests.model.wire import KilledError, Wire

TICK_S = 0.5
RATES = (1.0, 0.97, 1.03, 0.96, 1.04)
_LOST, _UNREACHABLE, _REFUSED, _DEAD = (object() for _ in range(4))
NO_ANSWER = (_UNREACHABLE, _DEAD)


@dataclass(eq=False)
class Client:
    number: int
    wire: Wire
    line: Queue
    paused_until: float = 0.0
    busy: bool = False


@dataclass(eq=False)
class Claim:
    """A request that some client looks after; ``keeper`` is ``None`` once that one died."""

    asked: Request
    keeper: Client | None
    ticket: Ticket | None = None
    held: bool = False
    looked: float = 0.0
    waited: float = 0.0
    looking_since: float | None = None
    extra_looks: bool = False
    woken: bool = False

    @property
    def period_s(self) -> float:
        return self.asked.ttl_ms / 1000 / 3


class World:
    """What the state machine drives.

    :param stores: one for each client, of the same nodes; ``None`` for memory.
    :param line: what is tested.
    """

    def __init__(
        self, counts: Counter[str], stores: Sequence[Nodes] | None = None, line: type[Queue] = Queue
    ) -> None:
        self.now = 0.0
        self.server_ms = 1_700_000_000_000
        self.counts = counts
        self.checker = Checker(lambda: self.now, counts)
        self.claims: list[Claim] = []
        self.zombies: list[tuple[Client, Queue, Ticket]] = []
        self.older: list[Request] = []  # of tries after which a younger one asked
        memory = MemoryNodes(lambda: self.server_ms)
        self._line = line
        self.followers = [] if stores else [Follower(memory) for _ in range(4)]
        self._stores: Sequence[Nodes] = stores or self.followers
        self._born = 0
        self.is_away = False
        self.clients = [self._new(number) for number in range(len(self._stores))]

    # Single steps.

    def request(self, claim: Claim) -> None:
        client = claim.keeper
        assert client
        asked = claim.asked
        answer = self._call(client, "request", asked, lambda: client.line.request(asked))
        if isinstance(answer, Ticket):
            claim.ticket, claim.held = answer, False
        elif answer is _REFUSED:
            self.checker.told_refused(client.wire.client, asked)
            self._drop(claim)

    def status(self, claim: Claim, *, extra: bool = True) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        claim.woken = False
        wake = partial(setattr, claim, "woken", True) if extra else None
        began = self.now
        answer = self._call(client, "status", ticket, lambda: client.line.status(ticket, wake))
        if answer is _LOST:
            self.checker.told_lost(ticket)
            self._drop(claim)
        elif isinstance(answer, Status) and answer.held:
            self.checker.told_held(client.wire.client, ticket)
            claim.held = True
        elif isinstance(answer, Status):
            names = [blocker.queued.name for blocker in answer.blockers]
            there = self.checker.told_blocked(client.wire.client, ticket, names)
            self._waits(claim, there, smooth=self.now == began, extra=extra)
        else:
            claim.looking_since = None

    def renew(self, claim: Claim, factor: int = 1) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        ttl_ms = factor * claim.asked.ttl_ms if factor > 1 else None
        before = self.checker.owned(ticket.name)
        answer = self._call(client, "renew", ticket, lambda: client.line.renew(ticket, ttl_ms))
        if answer is _LOST:
            self.checker.told_lost(ticket)
            self._drop(claim)
        elif answer not in NO_ANSWER:
            self.checker.told_done(ticket, before)
            self._sweep(claim, client, ticket)

    def _sweep(self, claim: Claim, client: Client, ticket: Ticket) -> None:
        if self._call(client, "sweep", ticket, lambda: client.line.sweep(ticket)) is _LOST:
            self.checker.told_lost(ticket)
            self._drop(claim)

    def ensure_held(self, claim: Claim) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        before = self.checker.owned(ticket.name)
        answer = self._call(client, "ensure_held", ticket, lambda: client.line.ensure_held(ticket))
        if answer is _LOST and claim.held:
            self.checker.told_lost(ticket)
            self._drop(claim)
        elif answer is None:
            self.checker.told_done(ticket, before)
            self.checker.told_held(client.wire.client, ticket)
            claim.held = True

    def adopt(self, claim: Claim, client: Client) -> None:
        ticket, old = claim.ticket, claim.keeper
        assert ticket
        before = self.checker.owned(ticket.name)
        answer = self._call(client, "adopt", ticket, lambda: client.line.adopt(ticket))
        if isinstance(answer, Ticket):
            self.checker.told_done(ticket, before, again_by=client.wire.client)
            if old and old is not client:
                self.zombies.append((old, old.line, ticket))
            claim.keeper, claim.ticket, claim.looking_since = client, answer, None
        elif answer is _LOST:
            self.checker.told_lost(ticket)
            self._drop(claim)

    def release(self, claim: Claim) -> None:
        client, ticket = claim.keeper, claim.ticket
        assert client
        assert ticket
        answer = self._call(client, "release", ticket, lambda: client.line.release(ticket))
        if answer in {True, False}:
            self.checker.told_released(ticket, was_there=answer)
            self._drop(claim)

    def zombie(self, number: int, what: str) -> None:
        """Have a process go on with a ticket that another one has taken over."""
        client, line, ticket = self.zombies[number % len(self.zombies)]
        if client.line is not line or not self.acts(client):
            return
        before = self.checker.owned(ticket.name)
        answer = self._call(client, what, ticket, lambda: getattr(line, what)(ticket))
        if what in {"renew", "ensure_held", "adopt"} and answer not in (_LOST, *NO_ANSWER):
            again_by = client.wire.client if what == "adopt" else None
            self.checker.told_done(ticket, before, again_by)
        if isinstance(answer, Status) and answer.held:
            self.checker.told_held(client.wire.client, ticket)

    def kill(self, client: Client) -> None:
        """Its process ends at once; another one comes in its place, knowing nothing."""
        for claim in self.claims:
            if claim.keeper is client:
                claim.keeper, claim.looking_since = None, None
        self.claims = [claim for claim in self.claims if claim.keeper or claim.ticket]
        fresh = self._new(client.number)
        client.line, client.wire, client.paused_until = fresh.line, fresh.wire, 0.0

    # Time.

    def acts(self, client: Client | None) -> bool:
        return client is not None and not client.busy and client.paused_until <= self.now

    def pass_time(self, ticks: int) -> None:
        """Whoever lives renews and looks, once in a renewal."""
        for _ in range(ticks):
            self.now += TICK_S
            for claim in list(self.claims):
                due = claim.woken or self.now - claim.looked >= claim.period_s
                if due and claim in self.claims and self.acts(claim.keeper):
                    self._tend(claim)

    def fall_behind(self, number: int) -> None:
        """Have one client's server learn nothing for now but what that client does."""
        if self.followers:
            self.followers[number % len(self.followers)].fall_behind()

    def be_away(self, ticks: int) -> None:
        """Have the store answer no client for a time, in which all go on trying."""
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
        """No fault any more: whoever lives is granted, once those who hold leave."""
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
                raise ViolationError(f"nobody is granted: {[claim.ticket for claim in self.claims]}")
            for claim in held:
                self.release(claim)
            for claim in list(self.claims):
                self._tend(claim)

    def _tend(self, claim: Claim) -> None:
        woken, client = claim.woken, claim.keeper
        if self.now - claim.looked >= claim.period_s:
            claim.looked = self.now
        if claim.ticket is None:
            self.request(claim)
        else:
            self.renew(claim)
        if claim.ticket and claim in self.claims and not claim.held and claim.keeper is client:
            self.status(claim, extra=woken)

    def _waits(self, claim: Claim, there: list[Entry], *, smooth: bool, extra: bool) -> None:
        """Check that no elder has been dead for longer than it may, seen by one who looks regularly."""
        claim.extra_looks |= extra
        late = self.now - claim.waited > claim.period_s
        claim.waited = self.now
        if claim.looking_since is None or late or not smooth:
            claim.looking_since, claim.extra_looks = (self.now if smooth else None), extra
            return
        for elder in there:
            waited_s = self.now - max(elder.written_s, claim.looking_since)
            # An extra look puts the regular one off by half a renewal, once at each end.
            periods = 3 if claim.extra_looks else 2
            # Between two looks no more counts than a renewal's period of the elder.
            counted_s = min(claim.period_s * min(RATES), elder.ttl_s / 3)
            looking_s = (elder.term_s * 1.02 // counted_s + 1) * claim.period_s
            if waited_s > max(elder.term_s * SLACK, looking_s) + periods * claim.period_s:
                raise ViolationError(f"{claim.ticket} waits {waited_s} s for a dead {elder}")

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
            self._looks_anew(client)
            return _UNREACHABLE
        except LeaseRefusedError:
            return _REFUSED
        except KilledError:
            self.kill(client)
            return _DEAD
        finally:
            client.busy = False
            if self.now != began:
                self._looks_anew(client)

    def _looks_anew(self, client: Client) -> None:
        """A client whose call failed or took long has seen nothing of the others for that time."""
        for claim in self.claims:
            if claim.keeper is client:
                claim.looking_since = None

    def _drop(self, claim: Claim) -> None:
        self.claims = [one for one in self.claims if one is not claim]

    def _new(self, number: int) -> Client:
        rate, self._born = RATES[self._born % len(RATES)], self._born + 1
        start = 1000.0 * self._born
        wire = Wire(self._stores[number], self.checker, (number, self._born))
        wire.is_away = self.is_away
        return Client(number, wire, self._line(wire, lambda: start + rate * self.now))
