"""Where tests and rigs keep their tables: on the local disk, or in an embedded object store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_occ_provider.embedded.object_store import EmbeddedObjectStore
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.storage.table import HudiTable

STORES = {"s3": EmbeddedS3proxy}
LOCAL = "local"
BUCKET = STORE_CONN_ID = "lake"


@contextmanager
def started_store(name: str, folder: Path) -> Iterator[EmbeddedObjectStore | None]:
    """Run an object store with a bucket; ``None`` for the local disk."""
    if name == LOCAL:
        yield None
        return
    with STORES[name](folder) as store:
        store.make_bucket(BUCKET)
        yield store


@dataclass(frozen=True)
class Lake:
    """Where tables are.

    :param folder: of the tables, on the local disk.
    :param store: the object store that has them in its bucket instead.
    """

    folder: Path
    store: EmbeddedObjectStore | None = None

    @property
    def conn_id(self) -> str:
        """The Airflow connection of the store; empty for the local disk."""
        return STORE_CONN_ID if self.store else ""

    def path(self, name: str) -> str:
        """Return the base path of a table."""
        return self.store.table(BUCKET, name) if self.store else str(self.folder / name)

    def open(self, path: str) -> HudiTable:
        """Open a table; one in the store with the store's Airflow connection."""
        if not self.store:
            return HudiTable(path)
        os.environ[f"AIRFLOW_CONN_{STORE_CONN_ID.upper()}"] = json.dumps(self.store.connection)
        return open_table(path, STORE_CONN_ID)
