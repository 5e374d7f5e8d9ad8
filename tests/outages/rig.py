"""Waiters in triggers, behind holders, while the lock service is unreachable again and again."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from unittest import mock

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger

TTL_MS = 3000
ROOT = "/outages"
TABLES = ("/lake/a", "/lake/b")
# Two triggerers: each connection has a session, and sightings, of its own.
CONNECTIONS = ("outages_1", "outages_2")
_PATIENCE_S = 900
_POLL_S = 0.2


class BrokenError(AssertionError):
    """A request lost its place."""


@dataclass
class Crowd:
    """One holder of each table, and waiters behind it.

    :param hosts: ZooKeeper, as holders and waiters reach it.
    :param other_hosts: ZooKeeper, as the rig itself reaches it.
    :param waiters: how many, over all tables.
    :param term_ms: milliseconds for which a waiter's renewal is good.
    :param timeout_s: seconds for which a call waits for an answer.
    """

    hosts: str
    other_hosts: str
    waiters: int
    term_ms: int = TTL_MS
    timeout_s: float = 1.5
    counts: Counter[str] = field(default_factory=Counter)

    async def run(
        self, away: Callable[[], AbstractContextManager[None]], seconds: float, times: int
    ) -> None:
        """Make the lock service unreachable, and check that each request keeps its place.

        :param away: a context in which the lock service is unreachable.
        :param seconds: length of each outage.
        :param times: number of outages.
        :raises BrokenError: if a request is gone.
        """
        with ExitStack() as stack:
            self._outside = self._queue(stack, self.other_hosts)
            stack.enter_context(mock.patch.dict(os.environ, self._connections()))
            holders = [self._hold(stack, table) for table in TABLES]
            tickets = [self._enqueue(number) for number in range(self.waiters)]
            names = {ticket.name for ticket in (*holders, *tickets)}
            waiting = [self._wait(number, ticket) for number, ticket in enumerate(tickets)]
            try:
                await self._renewed(names)
                for _ in range(times):
                    outage = away()
                    await asyncio.to_thread(outage.__enter__)
                    await asyncio.sleep(seconds)
                    await asyncio.to_thread(outage.__exit__, None, None, None)
                    await self._renewed(names)
                    self._all_wait(waiting)
                    self.counts["outages"] += 1
                await self._release_all(self._queue(stack, self.hosts), holders, tickets, waiting)
            finally:
                for one in waiting:
                    one.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    def _connections(self) -> dict[str, str]:
        extra = {
            "lease_root": ROOT,
            "base_path": "/hudi",
            "connection_timeout_ms": self.timeout_s * 1000,
        }
        value = {"conn_type": "hudi_zookeeper_lock", "host": self.hosts, "extra": json.dumps(extra)}
        return {f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name in CONNECTIONS}

    def _queue(self, stack: ExitStack, hosts: str) -> Queue:
        queue = Queue(ZookeeperStore(ZookeeperAccess(hosts, self.timeout_s), ROOT))
        stack.callback(queue.close)
        return queue

    def _hold(self, stack: ExitStack, table: str) -> Ticket:
        queue = self._queue(stack, self.hosts)
        ticket = queue.request(_asked("holder", table, -1))
        stack.enter_context(Keeper(queue, ticket, TTL_MS))
        return ticket

    def _enqueue(self, number: int) -> Ticket:
        ticket = self._outside.request(_asked("waiter", TABLES[number % len(TABLES)], number))
        self._outside.renew(ticket, 600_000)
        return ticket

    def _wait(self, number: int, ticket: Ticket) -> asyncio.Task[object]:
        trigger = HudiAdmissionTrigger(
            lock_conn_id=CONNECTIONS[number // len(TABLES) % len(CONNECTIONS)],
            ticket=ticket.to_json(),
            ttl_ms=TTL_MS,
            claim_ttl_ms=self.term_ms,
        )
        return asyncio.ensure_future(anext(trigger.run()))

    async def _renewed(self, names: set[str]) -> None:
        """Wait until each request was renewed twice: by then a wrong observer has removed it."""
        seen: dict[str, set[int]] = {name: set() for name in names}
        deadline_s = time.monotonic() + _PATIENCE_S
        while behind := [name for name, versions in seen.items() if len(versions) < 3]:
            with suppress(LockUnreachableError):
                found = await asyncio.to_thread(self._outside._store.read, behind, latest=True)
                if gone := set(behind) - found.keys():
                    raise BrokenError(f"{len(gone)} of {len(names)} requests lost their place")
                for name, node in found.items():
                    seen[name].add(node.version)
            if time.monotonic() > deadline_s:
                raise BrokenError(f"{len(behind)} requests are not renewed in {_PATIENCE_S} s")
            await asyncio.sleep(_POLL_S)

    def _all_wait(self, waiting: list[asyncio.Task[object]]) -> None:
        if fired := [one.result() for one in waiting if one.done()]:
            raise BrokenError(f"{len(fired)} waiters got the event {fired[0]}")

    async def _release_all(
        self,
        queue: Queue,
        holders: list[Ticket],
        tickets: list[Ticket],
        waiting: list[asyncio.Task[object]],
    ) -> None:
        """Release the holders from another process: each table's first waiter is granted."""
        for ticket in holders:
            await asyncio.to_thread(queue.renew, ticket)
            if not await asyncio.to_thread(queue.release, ticket):
                raise BrokenError(f"the release of {ticket} found nothing")
        for number in range(len(TABLES)):
            event = await asyncio.wait_for(asyncio.shield(waiting[number]), _PATIENCE_S)
            self.counts[f"event {event.payload['status']}"] += 1  # type: ignore[attr-defined]
        self._all_wait(waiting[len(TABLES) :])
        for ticket in tickets:
            self.counts["released"] += await asyncio.to_thread(self._outside.release, ticket)


def _asked(who: str, table: str, number: int) -> Request:
    scopes = (Scope.of(table, None),)
    return Request(
        f"{who}{number}{table[-1]}", Owner(("dag", f"{who}-{number}-{table}", "write")), scopes, TTL_MS
    )
