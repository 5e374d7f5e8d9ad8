"""Clients that hold one lock in alternation: by a lease of ours, and by kazoo's Lock."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from kazoo.client import KazooClient

from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks, MetastoreStore
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore

TIMEOUT_S = 60.0
_TTL_MS = 600_000
_LOCK = "/bench-kazoo"


class Holding(NamedTuple):
    """One holding; times are those of the system's monotonic clock, which all processes share.

    :param token: the order token; 0 where there is none.
    :param held_s: when its owner got the answer that it holds.
    :param released_s: when it began to release.
    """

    token: int
    held_s: float
    released_s: float


class Contestant(Protocol):
    """A client with its own session."""

    def acquire(self) -> int: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class Ours:
    """Requests a lease, waits for it by ``status`` and a watch, and releases it."""

    def __init__(self, hosts: str) -> None:
        self._queue = self._open(hosts)
        self._ticket: Ticket | None = None
        self._owner = Owner(("bench", uuid.uuid4().hex))

    def _open(self, hosts: str) -> Queue:
        return Queue(ZookeeperStore(ZookeeperAccess(hosts, TIMEOUT_S), "/bench-ours"))

    def acquire(self) -> int:
        scopes = (Scope.of("s3://lake/trips", None),)
        self._ticket = ticket = self._queue.request(
            Request(uuid.uuid4().hex, self._owner, scopes, _TTL_MS)
        )
        woken = threading.Event()
        while not self._queue.status(ticket, woken.set).held:
            assert woken.wait(TIMEOUT_S)
            woken.clear()
        return ticket.token

    def release(self) -> None:
        assert self._ticket
        self._queue.release(self._ticket)  # False if the answer was lost and the call repeated

    def close(self) -> None:
        self._queue.close()


class OnMetastore(Ours):
    """The same with a metastore, which is polled; counts the calls."""

    def _open(self, hosts: str) -> Queue:
        client = CountedClient(MetastoreAccess(hosts, TIMEOUT_S))
        self.client = client
        return Queue(MetastoreStore(MetastoreLocks(client, "bench"), METASTORE_LOCK_S))


class CountedClient(MetastoreClient):
    calls = 0

    def call(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return super().call(*arguments, **options)


class Kazoos:
    """Takes a new Lock each time, as ``with client.Lock(path)`` does."""

    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts, TIMEOUT_S)
        self._client.start(timeout=TIMEOUT_S)

    def acquire(self) -> int:
        self._lock = self._client.Lock(_LOCK)
        assert self._lock.acquire(timeout=TIMEOUT_S)
        return 0

    def release(self) -> None:
        self._lock.release()

    def close(self) -> None:
        self._client.stop()
        self._client.close()


KINDS: dict[str, type[Ours | Kazoos]] = {"kazoo's Lock": Kazoos, "ours": Ours}
METASTORE_LOCK_S = 600
ON_METASTORE = "ours, on a metastore"


def hold_repeatedly(kind: str, hosts: str, count: int, hold_s: float) -> list[Holding]:
    """Hold the lock again and again, each time long enough for the others to be queued."""
    for name in ("kazoo", "airflow_occ_provider"):
        logging.getLogger(name).setLevel(logging.ERROR)  # a server is killed on purpose
    client = {**KINDS, ON_METASTORE: OnMetastore}[kind](hosts)
    holdings = []
    for _ in range(count):
        token = client.acquire()
        held_s = time.monotonic()
        time.sleep(hold_s)
        holdings.append(Holding(token, held_s, time.monotonic()))
        client.release()
    client.close()
    return holdings


def handovers(by_process: list[list[Holding]]) -> list[float]:
    """Return the seconds of each hand-over from one process to another, which was waiting."""
    order = sorted(
        (holding.held_s, holding.released_s, process)
        for process, holdings in enumerate(by_process)
        for holding in holdings
    )
    pairs = pairwise(order)
    return [after[0] - before[1] for before, after in pairs if before[2] != after[2]]
