"""Leases in DynamoDB by plain values; the client is imported late."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import DYNAMODB_TABLE
from airflow_occ_provider.leases.dynamodb.access import DynamoAccess, require_client
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.ledger import LedgerStore
from airflow_occ_provider.leases.storage.address import BUCKET_PACE
from airflow_occ_provider.leases.store import NodeTakenError, NodeVersionError, Store, Version

if TYPE_CHECKING:
    from airflow_occ_provider.leases.backend import HudiLock
    from airflow_occ_provider.leases.dynamodb.ledger import DynamoLedger
    from airflow_occ_provider.leases.queue import Queue

LEASE_QUEUE = "leases"
_RACERS, _RACES = 8, 50


@dataclass(frozen=True, slots=True)
class DynamoLeases:
    """Leases in a table of DynamoDB: a ``LeaseBackend``.

    :param access: the way to the table.
    :param queue: value of the partition key under which they are: a table may keep several queues.
    :param ttls: of the leases.
    :param poll_s: the most seconds between two looks.
    :param timeout_s: seconds for each request.
    """

    access: DynamoAccess
    queue: str = LEASE_QUEUE
    ttls: Terms = BUCKET_PACE.terms
    poll_s: int = BUCKET_PACE.poll_s
    timeout_s: float = 10.0

    def beside(self, lock: HudiLock, /) -> DynamoLeases:
        """Return itself: Hudi's lock needs a table with another key.

        :raises ConfigurationError: if it is the same table.
        """
        if lock.options("/check").get(DYNAMODB_TABLE, "") == self.access.table:
            raise ConfigurationError(
                "lock_table",
                f"{self.access.table} is the table of the leases, whose key is another one",
                remedy="enter another table; Hudi creates it",
            )
        return self

    def terms(self) -> Terms:
        """Return the TTLs of the leases."""
        return self.ttls

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        from airflow_occ_provider.leases.queue import Queue

        return Queue(LedgerStore(self._ledger(self.queue), self.poll_s))

    def validate(self) -> None:
        """Check that the client is installed."""
        require_client()

    def test(self) -> str:
        """Check that of several changes on one condition exactly one is carried out."""
        with ExitStack() as opened:
            probe = f"check-{uuid.uuid4().hex}"
            ledgers = [opened.enter_context(closing(self._ledger(probe))) for _ in range(_RACERS)]
            stores = [LedgerStore(ledger, self.poll_s) for ledger in ledgers]
            try:
                self._check_steps(stores[0])
                count = self._check_races(stores)
            finally:
                ledgers[0].clear()
        return (
            f"DynamoDB table {self.access.table}: in {count} races of {_RACERS} changes, one was "
            "carried out each time, and creations had one order."
        )

    def _ledger(self, queue: str) -> DynamoLedger:
        require_client()
        from airflow_occ_provider.leases.dynamodb.ledger import DynamoLedger

        return DynamoLedger(self.access, queue, self.timeout_s)

    def _check_steps(self, store: Store) -> None:
        """Check single changes."""
        first = store.create("first", b"1")
        version = store.replace("first", b"2", first.version)
        for change, refusal in (
            (partial(store.create, "first", b"3"), NodeTakenError),
            (partial(store.replace, "first", b"3", first.version), NodeVersionError),
            (partial(store.delete, "first", first.version), NodeVersionError),
        ):
            try:
                change()
            except refusal:
                continue
            raise self._inexact("it ignores the condition of a change")
        if store.read(["first"], latest=True)["first"].data != b"2":
            raise self._inexact("it did not return what was written last")
        store.delete("first", version)

    def _check_races(self, stores: list[LedgerStore]) -> int:
        """Let clients create nodes and replace one at the same time; return the number of races."""
        until_s = time.monotonic() + self.timeout_s
        version: Version = stores[0].create("raced", b"").version
        tokens: list[int] = []
        with ThreadPoolExecutor(_RACERS) as pool:
            for race in range(1, _RACES + 1):
                start = threading.Barrier(_RACERS)
                race_of = partial(_race, start=start, version=version, race=race)
                answers = list(pool.map(race_of, stores, range(_RACERS)))
                tokens += [token for token, _ in answers]
                versions = [new for _, new in answers if new is not None]
                if len(versions) != 1 or len(set(tokens)) != len(tokens):
                    raise self._inexact(f"{len(versions)} of {_RACERS} changes on one version were made")
                (version,) = versions
                if time.monotonic() > until_s:
                    return race
        return _RACES

    def _inexact(self, fault: str) -> ConfigurationError:
        return ConfigurationError(
            "host",
            f"table {self.access.table} cannot keep leases: {fault}",
            remedy="use DynamoDB itself, or another connection",
        )


def _race(
    store: Store, racer: int, *, start: threading.Barrier, version: Version, race: int
) -> tuple[int, Version | None]:
    """Create a node, and replace another one; return the token, and the new version if it was done."""
    start.wait()
    token = store.create(f"{race}-{racer}", b"").token
    try:
        return token, store.replace("raced", b"%d" % racer, version)
    except NodeVersionError:
        return token, None
