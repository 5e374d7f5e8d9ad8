"""The kinds of lease stores, on which the contract, the model and the hand-overs run."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore.store

from airflow_occ_provider.embedded.metastore import EmbeddedMetastore
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.leases.dynamodb.access import DynamoAccess
from airflow_occ_provider.leases.dynamodb.ledger import DynamoLedger
from airflow_occ_provider.leases.ledger import LedgerStore
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks, MetastoreStore
from airflow_occ_provider.leases.storage.address import S3Access
from airflow_occ_provider.leases.storage.backend import StorageStore, open_shared_object
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.leases.storage.objects import SharedObject
from airflow_occ_provider.leases.store import Node, Store, Version
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from tests.crowd.locks import MemoryLocks
from tests.services.dynamodb import EmbeddedDynamo, any_session
from tests.services.versitygw import EmbeddedVersitygw
from tests.support.memory_store import MemoryStore

LOCKS_LIVE_S = 600
METASTORE_TIMEOUT_S = 60.0  # eight threads share two connections to Derby
NOWHERE, NO_ANSWER_S = "127.0.0.1:1", 0.3
SERVERS: dict[str, Callable[[Path], Any]] = {
    "zookeeper": EmbeddedZookeeper,
    "metastore": lambda folder: EmbeddedMetastore(folder, lock_timeout_s=LOCKS_LIVE_S),
    "s3": EmbeddedVersitygw,
    "dynamodb": EmbeddedDynamo,
}


class _Prompt(LedgerStore):
    """The same without any age: a lot of virtual time passes in a real millisecond."""

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        return super().stamps()

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        return super().read(names, latest=True)


class PromptStore(_Prompt, StorageStore):
    """A prompt store in a shared object."""


class PromptItems(_Prompt):
    """A prompt store in items of DynamoDB."""


class PromptLocks(_Prompt, MetastoreStore):
    """A prompt store in a metastore's locks."""


@dataclass(frozen=True)
class Site:
    """What a new store is opened in.

    :param folder: an empty one of this machine.
    :param server: returns a running server of ``SERVERS`` by its name.
    :param poll_s: the most seconds between two looks of a store that polls.
    :param is_prompt: whether it is for virtual time.
    """

    folder: Path
    server: Callable[[str], Any]
    poll_s: float = 0.05
    is_prompt: bool = False

    def in_object(self, shared: SharedObject) -> Store:
        return (PromptStore if self.is_prompt else StorageStore)(shared, self.poll_s)

    def in_locks(self, locks: Any, lifetime_s: float) -> Store:
        return (PromptLocks if self.is_prompt else MetastoreStore)(locks, lifetime_s, self.poll_s)


def _memory(_site: Site) -> Callable[[], Store]:
    store = MemoryStore()
    return lambda: store


def _zookeeper(site: Site) -> Callable[[], Store]:
    access, root = ZookeeperAccess(site.server("zookeeper").hosts), f"/test/{uuid.uuid4()}"
    return lambda: ZookeeperStore(access, root)


def _folder(site: Site) -> Callable[[], Store]:
    return lambda: site.in_object(open_shared_object(str(site.folder / "leases")))


def _bucket(site: Site) -> Callable[[], Store]:
    bucket = obstore.store.MemoryStore()
    return lambda: site.in_object(BucketObject(bucket, "leases/queue.json", "memory://leases"))


def _s3(site: Site) -> Callable[[], Store]:
    server = site.server("s3")
    server.make_bucket("lake")
    access = S3Access(server.KEY, server.SECRET, endpoint=server.url)
    return lambda: site.in_object(open_shared_object("s3://lake/leases", access))


def _dynamodb(site: Site) -> Callable[[], Store]:
    server, queue = site.server("dynamodb"), uuid.uuid4().hex
    server.make_table()
    kind = PromptItems if site.is_prompt else LedgerStore
    return lambda: kind(DynamoLedger(server.access(), queue, 10.0), site.poll_s)


def _locks(site: Site) -> Callable[[], Store]:
    """Return what opens a store in the locks of a metastore, in memory."""
    locks = MemoryLocks(LOCKS_LIVE_S)
    return lambda: site.in_locks(locks, LOCKS_LIVE_S)


def _metastore(site: Site) -> Callable[[], Store]:
    server, database = site.server("metastore"), f"test_{uuid.uuid4().hex}"
    access = MetastoreAccess(server.uris, METASTORE_TIMEOUT_S)
    return lambda: site.in_locks(
        MetastoreLocks(MetastoreClient(access), database), server.lock_timeout_s
    )


STORES: dict[str, Callable[[Site], Callable[[], Store]]] = {
    "memory": _memory,
    "zookeeper": _zookeeper,
    "folder": _folder,
    "bucket": _bucket,
    "s3": _s3,
    "dynamodb": _dynamodb,
    "locks": _locks,
    "metastore": _metastore,
}
"""Each makes a new store and returns what opens a client of it, as another process does."""

UNREACHABLE: dict[str, Callable[[], Store]] = {
    "zookeeper": lambda: ZookeeperStore(ZookeeperAccess(NOWHERE, NO_ANSWER_S), "/test"),
    "dynamodb": lambda: LedgerStore(
        DynamoLedger(
            DynamoAccess("leases", "us-east-1", f"http://{NOWHERE}", any_session), "leases", NO_ANSWER_S
        ),
        poll_s=1.0,
    ),
    "bucket": lambda: StorageStore(
        open_shared_object(
            "s3://leases", S3Access("k", "s", endpoint=f"http://{NOWHERE}"), timeout_s=NO_ANSWER_S
        ),
        timeout_s=NO_ANSWER_S,
    ),
    "metastore": lambda: MetastoreStore(
        MetastoreLocks(MetastoreClient(MetastoreAccess(f"thrift://{NOWHERE}", NO_ANSWER_S)), "test"),
        LOCKS_LIVE_S,
    ),
}
"""Each opens a client of a store that does not answer."""


@contextmanager
def prompt_store(kind: str) -> Iterator[Callable[[], Store]]:
    """Return what opens clients of a new store for virtual time, on a server of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leases-")))

        def server(name: str) -> Any:
            return stack.enter_context(SERVERS[name](folder))

        open_store = STORES[kind](Site(folder, server, is_prompt=True))

        def opened() -> Store:
            store = open_store()
            stack.callback(store.close)
            return store

        yield opened
