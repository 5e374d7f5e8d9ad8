"""Who takes turns at one lock: a client of ours, and one of kazoo's stock Lock."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from kazoo.client import KazooClient

from airflow_occ_provider.leases.lease import LeaseService, Ticket
from airflow_occ_provider.leases.metastore.client import Access as MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.client import Access
from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes

TIMEOUT_S = 60.0
_TTL_MS = 600_000
_LOCK = "/bench-kazoo"


class Turn(NamedTuple):
    """One holding; the clock is the system's monotonic one, which all processes share.

    :param token: the order token; 0 where there is none.
    :param held_s: when its owner knew that it holds.
    :param released_s: when it began to let go.
    """

    token: int
    held_s: float
    released_s: float


class Contestant(Protocol):
    """A client with a session of its own."""

    def acquire(self) -> int: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class Ours:
    """Requests, waits for its turn by ``status`` and a watch, and releases."""

    def __init__(self, hosts: str) -> None:
        self._line = self._open(hosts)
        self._ticket: Ticket | None = None
        self._owner = Owner(("bench", uuid.uuid4().hex))

    def _open(self, hosts: str) -> LeaseService:
        return Queue(ZookeeperNodes(Access(hosts, TIMEOUT_S), "/bench-ours"))

    def acquire(self) -> int:
        scopes = (Scope.of("s3://lake/trips", None),)
        self._ticket = ticket = self._line.request(
            Request(uuid.uuid4().hex, self._owner, scopes, _TTL_MS)
        )
        woken = threading.Event()
        while not self._line.status(ticket, woken.set).held:
            assert woken.wait(TIMEOUT_S)
            woken.clear()
        return ticket.token

    def release(self) -> None:
        assert self._ticket
        self._line.release(self._ticket)  # says no where the answer was lost and it was asked again

    def close(self) -> None:
        self._line.close()


class OnMetastore(Ours):
    """The same where a metastore grants, which is asked every so often; counts the calls."""

    def _open(self, hosts: str) -> LeaseService:
        client = CountedClient(MetastoreAccess(hosts, TIMEOUT_S))
        self.client = client
        return MetastoreLeases(MetastoreLocks(client, "bench"), _TTL_MS)


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
ON_METASTORE = "ours, on a metastore"


def take_turns(kind: str, hosts: str, count: int, hold_s: float) -> list[Turn]:
    """Hold the lock again and again, long enough for the others to stand in line meanwhile."""
    for name in ("kazoo", "airflow_occ_provider"):
        logging.getLogger(name).setLevel(logging.ERROR)  # a server is killed on purpose
    client = {**KINDS, ON_METASTORE: OnMetastore}[kind](hosts)
    turns = []
    for _ in range(count):
        token = client.acquire()
        held_s = time.monotonic()
        time.sleep(hold_s)
        turns.append(Turn(token, held_s, time.monotonic()))
        client.release()
    client.close()
    return turns


def handovers(everybody: list[list[Turn]]) -> list[float]:
    """Return the seconds of each hand-over from one process to another, who was waiting for it."""
    order = sorted(
        (turn.held_s, turn.released_s, who) for who, all_ in enumerate(everybody) for turn in all_
    )
    pairs = pairwise(order)
    return [after[0] - before[1] for before, after in pairs if before[2] != after[2]]
