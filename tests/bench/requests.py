"""What the queue of a bucket costs in requests: ``python -m tests.bench.requests``.

``CHECK=1`` makes it a test. It takes six minutes: the triggers of some triggerers go by the default
times of a bucket, on a real S3 server.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import structlog

from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.storage.address import BUCKET_PACE, S3Access
from airflow_occ_provider.leases.storage.backend import StorageStore, open_shared_object
from airflow_occ_provider.leases.storage.objects import ObjectContent, SharedObject, SupersededError
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger, HudiKeepLeaseTrigger, LeaseTrigger
from tests.bench.harness import Goal, conclude
from tests.services.versitygw import EmbeddedVersitygw

PACE = BUCKET_PACE
SETTLE_S, MEASURED_S = 75.0, 180.0
CROWD, HANDOVERS = 100, 40
# Amazon's list prices in US dollars of us-east-1: of a GET, and of a PUT, refused or not.
GET_USD, PUT_USD = 0.0004 / 1000, 0.005 / 1000


class Counted:
    """A shared object whose requests are counted by kind."""

    def __init__(self, shared: SharedObject) -> None:
        self._shared, self.place = shared, shared.place
        self.seen: Counter[str] = Counter()

    def read(self, tag: str) -> ObjectContent | None:
        content = self._shared.read(tag)
        self.seen["GET unchanged" if content is None else "GET"] += 1
        return content

    def write(self, data: bytes, tag: str) -> str:
        try:
            tag = self._shared.write(data, tag)
        except SupersededError:
            self.seen["PUT refused"] += 1
            raise
        self.seen["PUT"] += 1
        return tag


class Triggerer:
    """The triggers of one process, on one connection.

    :param server: of the bucket.
    :param root: of the leases.
    """

    def __init__(self, server: EmbeddedVersitygw, root: str, name: str) -> None:
        access = S3Access(server.KEY, server.SECRET, endpoint=server.url)
        self.counted = Counted(open_shared_object(root, access))
        store = StorageStore(self.counted, PACE.poll_s, gather_s=PACE.gather_s)
        self.queue, self.name = Queue(store), name

    def ask(self, owner: str, table: str) -> Ticket:
        ttl_ms = PACE.ttl_s * 1000
        return self.queue.request(Request(owner, Owner((owner, "r")), (Scope.of(table, None),), ttl_ms))

    def start(self, kind: type[LeaseTrigger], ticket: Ticket) -> asyncio.Task[str]:
        trigger = kind(
            lock_conn_id=self.name,
            ticket=ticket.to_json(),
            ttl_ms=PACE.ttl_s * 1000,
            claim_ttl_ms=PACE.claim_ttl_s * 1000,
        )

        async def status() -> str:
            async for event in trigger.run():
                return str(event.payload["status"])
            return ""

        return asyncio.create_task(status())


class Site:
    """Some triggerers that share the queue of one root."""

    def __init__(self, server: EmbeddedVersitygw, root: str) -> None:
        self.triggerers = [Triggerer(server, root, f"{root}#{number}") for number in range(2)]
        self.by_name = {one.name: one for one in self.triggerers}


async def count(site: Site, waiters: int) -> list[Counter[str]]:
    """Return the requests of a holder's triggerer and of its waiters', in the measured time."""
    holding, waiting = site.triggerers
    tasks = [holding.start(HudiKeepLeaseTrigger, holding.ask("holder", "/t"))]
    for number in range(waiters):
        ticket = await asyncio.to_thread(waiting.ask, f"w{number}", "/t")
        tasks.append(waiting.start(HudiAdmissionTrigger, ticket))
        await asyncio.sleep(random.uniform(0, 50 / waiters))
    await asyncio.sleep(SETTLE_S)
    for one in site.triggerers:
        one.counted.seen.clear()
    await asyncio.sleep(MEASURED_S)
    seen = [Counter(one.counted.seen) for one in site.triggerers]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seen


async def hand_over(site: Site, chance: random.Random) -> list[float]:
    """Return the seconds from the release of each lease to its grant to a waiter."""
    holding, waiting = site.triggerers

    async def once(number: int) -> float:
        table = f"/t{number}"
        held = await asyncio.to_thread(holding.ask, f"h{number}", table)
        task = waiting.start(
            HudiAdmissionTrigger, await asyncio.to_thread(waiting.ask, f"w{number}", table)
        )
        await asyncio.sleep(20 + chance.uniform(0, 5 * PACE.poll_s))
        began_s = time.monotonic()
        await asyncio.to_thread(holding.queue.release, held)
        await task
        return time.monotonic() - began_s

    return list(await asyncio.gather(*map(once, range(HANDOVERS))))


async def measure(server: EmbeddedVersitygw) -> list[Goal]:
    alone, crowd, passing = (Site(server, f"s3://lake/{name}") for name in ("one", "many", "pass"))
    queues = alone.by_name | crowd.by_name | passing.by_name
    hooks = mock.patch(
        "airflow_occ_provider.triggers.lease.lock_hook",
        lambda name: SimpleNamespace(leases=lambda: queues[name].queue),
    )
    with hooks, mock.patch.object(Queue, "close"):
        few, many, took = await asyncio.gather(
            count(alone, 1), count(crowd, CROWD), hand_over(passing, random.Random(7))
        )
    minutes = MEASURED_S / 60
    seen = {"holder": few[0], "waiter": few[1], "crowd": many[1]}
    for who, requests in seen.items():
        print(f"{who:>8}: " + ", ".join(f"{n / minutes:.1f} {what}" for what, n in requests.items()))
        puts = requests["PUT"] + requests["PUT refused"]
        usd = (puts * PUT_USD + (requests.total() - puts) * GET_USD) / minutes
        print(f"{'':>8}  US$ {usd * 60:.5f} an hour")
    rates = {who: requests.total() / minutes for who, requests in seen.items()}
    return [
        Goal("bucket: requests a minute of a holder", rates["holder"], at_most=4, unit=""),
        Goal("bucket: requests a minute of a waiter", rates["waiter"], at_most=6, unit=""),
        Goal("bucket: requests a minute of 100 waiters", rates["crowd"], at_most=120, unit=""),
        Goal("bucket: hand-over, p50, in polls", statistics.median(took) / PACE.poll_s, at_most=1.5),
        Goal("bucket: hand-over, longest, in polls", max(took) / PACE.poll_s),
    ]


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(EmbeddedVersitygw(folder))
        server.make_bucket("lake")
        return conclude(asyncio.run(measure(server)))


if __name__ == "__main__":
    sys.exit(main())
