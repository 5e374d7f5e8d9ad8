"""The storages on which the model and the hand-overs run, and a store for virtual time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import obstore.store

from airflow_occ_provider.leases.ledger import LedgerStore
from airflow_occ_provider.leases.metastore.lock_log import MetastoreStore
from airflow_occ_provider.leases.storage.address import S3Access
from airflow_occ_provider.leases.storage.backend import StorageStore, open_shared_object
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.leases.storage.objects import SharedObject
from airflow_occ_provider.leases.store import Node, Version
from tests.services.versitygw import EmbeddedVersitygw

BACKENDS = ("folder", "bucket", "s3")


class _Prompt(LedgerStore):
    """The same without any age: a lot of virtual time passes in a real millisecond."""

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        return super().stamps()

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        return super().read(names, latest=True)


class PromptStore(_Prompt, StorageStore):
    """A prompt store in a shared object."""


class PromptLocks(_Prompt, MetastoreStore):
    """A prompt store in a metastore's locks."""


@contextmanager
def shared_objects(backend: str) -> Iterator[Callable[[], SharedObject]]:
    """Return a function that opens one object as another process does.

    :param backend: a local folder, a bucket in memory, or one of a real S3 server.
    """
    with tempfile.TemporaryDirectory(prefix="leases-") as name:
        folder = Path(name)
        if backend == "folder":
            yield lambda: open_shared_object(str(folder / "leases"))
        elif backend == "bucket":
            bucket = obstore.store.MemoryStore()
            yield lambda: BucketObject(bucket, "leases/queue.json", "memory://leases/queue.json")
        else:
            with EmbeddedVersitygw(folder) as server:
                server.make_bucket("lake")
                access = S3Access(server.KEY, server.SECRET, endpoint=server.url)
                yield lambda: open_shared_object("s3://lake/leases", access)
