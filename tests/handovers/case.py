"""One hand-over worker -> triggerer -> worker, beside a waiting rival that polls all the time."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from unittest import mock

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.store import Store
from airflow_occ_provider.triggers.base import earliest_s
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger, HudiKeepLeaseTrigger, LeaseTrigger
from tests.handovers.clock import VirtualLoop

CONNECTION = "handovers"
TTL_S, CLAIM_S = 10, 30
PERIOD_S = TTL_S / 3
TICK_S = 1.0
# Up to there an owner may rely on its term; from there on a dead one has to be removed.
GOOD = 0.97
# Real seconds in which a deletion wakes the trigger that watches for it; virtual time stands still.
WAKE_S = 60
KILLS = ("nowhere", "asked", "deferred", "waiting", "fired", "adopted", "holding")
KEEPER_KILLS = ("nowhere", "deferred", "keeping")


class BrokenError(AssertionError):
    """A promise of the queue was broken."""


def gone_by(term_s: float) -> float:
    """Return the seconds after its last renewal by which a dead request is removed."""
    return term_s * 1.02 + 2 * PERIOD_S + TICK_S


def connection(hosts: str, root: str) -> dict[str, str]:
    """Return the environment that holds the connection which workers and triggers use."""
    extra = {"lease_root": root, "base_path": "/hudi", "lease_ttl_s": TTL_S, "claim_ttl_s": CLAIM_S}
    extra |= {"connection_timeout_ms": TTL_S * 1000 // 3}
    value = {"conn_type": "hudi_zookeeper_lock", "host": hosts, "extra": json.dumps(extra)}
    return {f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(value)}


@dataclass
class Case:
    """One hand-over on one table; a seed decides what happens.

    :param number: of the case; it names the table.
    :param seed: decides which process is killed where, and every delay.
    :param loop: runs the triggers.
    :param store: of the requests.
    :param others: the queue as the earlier request and the rival use it, which are not handed over.
    :param counts: what was seen.
    """

    number: int
    seed: int
    loop: VirtualLoop
    store: Store
    others: Queue
    counts: Counter[str]

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}-{self.number}")
        self.scopes = (Scope.of(f"/handovers/{self.seed}/{self.number}", None),)
        self.run_path = ("dag", f"run-{self.number}")
        self.asked = Request(f"r{self.number:x}", Owner((*self.run_path, "write")), self.scopes, 10_000)
        self.earlier: Ticket | None = None
        self.rival: Ticket | None = None
        self.rival_holds = False
        self.left = False
        self.name, self.seen, self.renewed = "", ("", -1), 0.0
        self.trigger: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Run the case, and leave nothing in the queue."""
        keeping = self.random.random() < 0.3
        kill = self.random.choice(KEEPER_KILLS if keeping else KILLS)
        self.counts[f"{'keeper' if keeping else 'writer'} killed {kill}"] += 1
        try:
            await (self._keep(kill) if keeping else self._write(kill))
            if self.others.requests(self.scopes[0].table):
                raise BrokenError("a request is left in the queue")
        except AssertionError as error:
            raise BrokenError(f"case {self.number}, {keeping=}, {kill=}: {error}") from error
        finally:
            await self._stop_trigger()
            for one in self.others.requests(self.scopes[0].table):
                self.others.evict(one)

    # A writer that is queued, is granted in the triggerer, and writes in its next process.

    async def _write(self, kill: str) -> None:
        self.earlier = self._enqueue(self.others, "earlier")
        worker, ticket = self._ask()
        self.rival = self._enqueue(self.others, "rival")
        if kill == "asked":
            return await self._end(worker, ticket, TTL_S)
        worker.renew(ticket, CLAIM_S * 1000)
        worker.close()
        if kill == "deferred":
            return await self._end(None, ticket, CLAIM_S)
        await self._late_start()
        self._start(HudiAdmissionTrigger, ticket)
        await self._pass(waited_s := self.random.uniform(0, 2.5 * TTL_S))
        if kill == "waiting":
            await self._stop_trigger()
            return await self._end(None, ticket, CLAIM_S)
        self._release_earlier()
        if waited_s > earliest_s() + TICK_S:
            await self._wait_until_fired()
        if await self._event_status() != {"status": "granted"}:
            raise BrokenError(f"the trigger's event is {await self._event_status()}")
        if kill == "fired":
            return await self._end(None, ticket, CLAIM_S)
        await self._late_start()
        worker, taken = self._ask()
        self._refuse(ticket, taken)
        self._check(worker.status(taken).held and (taken.name, taken.epoch) == (ticket.name, 2), taken)
        if kill == "adopted":  # a driver may live on the term before, until the first renewal
            return await self._end(worker, taken, CLAIM_S)
        await self._pass(self.random.uniform(0, 2.5 * TTL_S), lambda: worker.renew(taken))
        if kill == "holding":
            return await self._end(worker, taken, TTL_S)
        self._check(worker.release(taken), "the release")
        worker.close()
        self.counts["handed over"] += 1
        return await self._rival_follows()

    # A lease around a run's tasks: requested in one process, kept in the triggerer, released in a third.

    async def _keep(self, kill: str) -> None:
        self.asked = Request(self.asked.id, Owner(self.run_path, "lease"), self.scopes, TTL_S * 1000)
        worker, ticket = self._ask()
        self._check(worker.status(ticket).held, "the lease")
        worker.renew(ticket, CLAIM_S * 1000)
        worker.close()
        self.rival = self._enqueue(self.others, "rival")
        if kill != "deferred":
            await self._late_start()
            self._start(HudiKeepLeaseTrigger, ticket)
            await self._pass(self.random.uniform(TTL_S / 2, 3.5 * TTL_S))
        if kill != "nowhere":
            await self._stop_trigger()
            return await self._keep_again(ticket)
        return await self._release(ticket)

    async def _keep_again(self, ticket: Ticket) -> None:
        waited_s = await self._gap(CLAIM_S)
        self._start(HudiKeepLeaseTrigger, ticket)
        await self._pass(TICK_S)
        if self._is_gone(ticket):
            self._freed(CLAIM_S, waited_s)
            self._check((await self._event_status())["status"] in {"released", "lost"}, "the keeper")
            self._refuse(ticket, ticket)
            return await self._rival_follows()
        self._check(waited_s <= gone_by(CLAIM_S), f"still kept after {waited_s} s")
        self.counts["taken over"] += 1
        return await self._release(ticket)

    async def _release(self, ticket: Ticket) -> None:
        worker = lock_hook(CONNECTION).leases()
        owner = Owner((*self.run_path, "write"))
        below = worker.request(Request(f"b{self.number:x}", owner, self.scopes, TTL_S * 1000))
        self._check(worker.status(below).held, "what passes under the run's lease")
        await self._pass(TTL_S / 2, lambda: worker.renew(below))
        self._check(worker.release(below), "its release")
        self._check(not self.rival_holds, "the rival is granted beside the run's lease")
        self._check(worker.release(ticket), "the release")
        self.left = True
        worker.close()
        self._check((await self._event_status())["status"] == "released", "the keeper")
        self.counts["handed over"] += 1
        await self._rival_follows()

    # After a process was killed.

    async def _end(self, zombie: Queue | None, ticket: Ticket, term_s: float) -> None:
        """Stop the renewals; the next try comes in time, late, or much too late."""
        if self.random.random() < 0.5:
            self._release_earlier()
        if zombie and self.earlier is None and self.random.random() < 0.5:
            waited_s = self._stall_while_reading(zombie, ticket, term_s)
        else:
            waited_s = await self._gap(term_s)
        gone, rival_held = self._is_gone(ticket), self.rival_holds
        worker, taken = self._ask()
        if gone:
            self._freed(term_s, waited_s)
            self._check(taken.token > self.rival_ticket.token, "it came back before the rival")
        else:
            self._check(waited_s <= gone_by(term_s), f"dead for {waited_s} s, and still queued")
            self._check((taken.name, taken.epoch) == (ticket.name, ticket.epoch + 1), "the adoption")
            self._check(not rival_held, "adopted, and the rival holds")
            self.counts["taken over"] += 1
        self._refuse(ticket, taken, zombie)
        self._release_earlier()
        if gone:
            await self._rival_follows(release=False)
            self._check(not worker.status(taken).held, "both hold")
            self.others.release(self.rival_ticket)
        await self._pass(TICK_S, lambda: worker.renew(taken))
        self._check(worker.status(taken).held, "it does not hold, and nothing blocks it")
        self._check(self.others.requests(self.scopes[0].table)[0].name == taken.name, "its place")
        self._check(worker.release(taken), "the release")
        worker.close()
        if not gone:
            await self._rival_follows()

    async def _gap(self, term_s: float) -> float:
        """Let time pass without renewals; return the seconds since the last renewal."""
        alive_s = self.loop.time() - self.renewed
        if self.random.random() < 0.5:
            until_s = max(alive_s, self.random.uniform(0, term_s * GOOD))
        else:
            until_s = self.random.uniform(term_s * GOOD, 1.6 * gone_by(term_s))
        await self._pass(until_s - alive_s, good_s=term_s * GOOD)
        return self.loop.time() - self.renewed

    def _stall_while_reading(self, holder: Queue, ticket: Ticket, term_s: float) -> float:
        """Pause a process in the middle of a status call, until the rival has its lease."""
        names = holder._reader.names

        def slow(age_s: float = 0.0) -> frozenset[str]:
            found = names(age_s)
            for _ in range(round(2 * gone_by(term_s) / TICK_S)):
                self.loop.clock.now += TICK_S
                self._poll_rival(term_s * GOOD)
            return found

        with mock.patch.object(holder._reader, "names", slow), suppress(LeaseLostError):
            self._check(not holder.status(ticket).held, "held in a status call that outlasted the lease")
        self.counts["stalled in a status call"] += 1
        return self.loop.time() - self.renewed

    def _freed(self, term_s: float, waited_s: float) -> None:
        self.left = True
        self._check(waited_s > term_s * GOOD, f"removed after {waited_s} s of {term_s}")
        self.counts["freed"] += 1

    def _refuse(self, ticket: Ticket, taken: Ticket, zombie: Queue | None = None) -> None:
        """Check that the process with the old ticket is refused."""
        queue = zombie or lock_hook(CONNECTION).leases()
        for what in (queue.renew, queue.status, queue.ensure_held, queue.adopt):
            with suppress(LeaseLostError):
                what(ticket)
                raise BrokenError(f"{what.__name__} of the zombie's {ticket} beside {taken}")
        self._check(not queue.release(ticket), "the zombie's release")
        self.counts["zombies refused"] += 1
        queue.close()

    async def _rival_follows(self, *, release: bool = True) -> None:
        self.left = True
        await self._pass(TICK_S)
        self._check(self.rival_holds, "the rival is not granted")
        if release:
            self._check(self.others.release(self.rival_ticket), "the rival's release")

    # Single steps.

    @property
    def rival_ticket(self) -> Ticket:
        assert self.rival
        return self.rival

    def _ask(self) -> tuple[Queue, Ticket]:
        worker = lock_hook(CONNECTION).leases()
        ticket = worker.request(self.asked)
        self.name = ticket.name
        self._note_renewal()
        return worker, ticket

    def _note_renewal(self) -> None:
        """Note when the request was renewed last: time stands still between two polls."""
        node = self.store.read([self.name]).get(self.name)
        if node and (self.name, node.version) != self.seen:
            self.seen, self.renewed = (self.name, node.version), self.loop.time()

    def _enqueue(self, queue: Queue, name: str) -> Ticket:
        owner = Owner((name, str(self.number)))
        ticket = queue.request(Request(f"{name}-{self.number}", owner, self.scopes, TTL_S * 1000))
        queue.renew(ticket, 1_000_000)
        return ticket

    def _release_earlier(self) -> None:
        if self.earlier:
            self.others.release(self.earlier)
            self.earlier = None

    def _is_gone(self, ticket: Ticket) -> bool:
        return ticket.name not in {one.name for one in self.others.requests(self.scopes[0].table)}

    def _start(self, kind: type[LeaseTrigger], ticket: Ticket) -> None:
        trigger = kind(
            lock_conn_id=CONNECTION,
            ticket=json.loads(json.dumps(ticket.to_json())),
            ttl_ms=TTL_S * 1000,
            claim_ttl_ms=CLAIM_S * 1000,
        )
        self.trigger = self.loop.create_task(_event_of(trigger))

    async def _wait_until_fired(self) -> None:
        """Return once the trigger has fired, at this moment of virtual time: not at its next poll."""
        assert self.trigger
        deadline_s = time.monotonic() + WAKE_S
        while not self.trigger.done():
            self._check(time.monotonic() < deadline_s, "the trigger is not woken")
            await self.loop.settle()
            time.sleep(0.001)  # noqa: ASYNC251 - real time, for the lock service

    async def _event_status(self) -> dict[str, Any]:
        assert self.trigger
        for _ in range(2 * round(PERIOD_S / TICK_S) + 2):
            await self.loop.settle()
            if self.trigger.done():
                return self.trigger.result()
            await self._pass(TICK_S)
        raise BrokenError("the trigger sends no event")

    async def _stop_trigger(self) -> None:
        """End the trigger as a killed triggerer does, without a word to the lock service."""
        if self.trigger and not self.trigger.done():
            self.trigger.cancel()
            with suppress(asyncio.CancelledError):
                await self.trigger

    async def _late_start(self) -> None:
        """Start the next process later than the time to live, while the claim is good."""
        await self._pass(self.random.uniform(TTL_S * 1.05, CLAIM_S * GOOD), good_s=CLAIM_S * GOOD)

    async def _pass(
        self, seconds: float, each: Callable[[], None] | None = None, good_s: float | None = None
    ) -> None:
        """Let time pass in steps; running processes renew, and the rival polls.

        :param each: renews, if this process is the one that has to.
        :param good_s: seconds since the last renewal up to which the rival must not be granted; by
            default it must never be, as a process renews.
        """
        end = self.loop.time() + seconds
        while True:
            left = end - self.loop.time()
            self.loop.clock.now += max(0.0, min(TICK_S, left))
            await self.loop.settle()
            if each:
                each()
            self._poll_rival(good_s)
            if left <= TICK_S:
                return

    def _poll_rival(self, good_s: float | None) -> None:
        self._note_renewal()
        if self.rival is None or self.rival_holds:
            return
        self.counts["looks of a rival"] += 1
        self.rival_holds = self.others.status(self.rival).held
        unrenewed_s = self.loop.time() - self.renewed
        if self.rival_holds and not self.left and (good_s is None or unrenewed_s <= good_s):
            raise BrokenError(f"the rival is granted, {unrenewed_s:.1f} s after the last renewal")

    def _check(self, kept: object, what: object) -> None:
        if not kept:
            raise BrokenError(what)


async def _event_of(trigger: LeaseTrigger) -> dict[str, Any]:
    (event,) = [event async for event in trigger.run()]
    return {key: value for key, value in event.payload.items() if key == "status"}
