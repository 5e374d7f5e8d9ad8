"""Where tests and rigs keep their tables: on the local disk, in an embedded object store, or on HDFS."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.object_store import EmbeddedObjectStore, EmbeddedS3
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.storage.table import HudiTable
from tests.services.azurite import EmbeddedAzurite
from tests.services.ceph import Ceph
from tests.services.fake_gcs import EmbeddedFakeGcs
from tests.services.hdfs import Hdfs

STORES: dict[str, Callable[[Path], EmbeddedObjectStore]] = {
    "s3": EmbeddedS3proxy,
    "gs": EmbeddedFakeGcs,
    "wasb": EmbeddedAzurite,
    "ceph": Ceph,
    "hdfs": Hdfs,
}
LOCAL = "local"
LOCKS = ("zookeeper", "metastore", "storage")
"""The locks of an ``EmbeddedStack``; the default is the first."""
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
    def connections(self) -> dict[str, dict[str, Any]]:
        """The Airflow connections of the store by name: of S3, the one whose provider is installed."""
        return {STORE_CONN_ID: self.store.connection} if isinstance(self.store, EmbeddedS3) else {}

    @property
    def conn_id(self) -> str:
        """The Airflow connection of the store; empty if there is none."""
        return next(iter(self.connections), "")

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables by which processes read the store without a connection."""
        return self.store.environment if self.store and not self.connections else {}

    def path(self, name: str) -> str:
        """Return the base path of a table."""
        return self.store.table(BUCKET, name) if self.store else str(self.folder / name)

    def copy(self, path: str, to: str) -> None:
        """Copy a table that nothing writes."""
        if not self.store:
            shutil.copytree(path, to)
            return
        begin, end = (one.removeprefix(f"{self.store.SCHEME}://") for one in (path, to))
        file_system = self.open(path).files.file_system
        for file in file_system.find(begin):
            if not file.endswith("/"):  # which stands for an empty folder
                file_system.cp_file(file, end + file.removeprefix(begin))

    def open(self, path: str) -> HudiTable:
        """Open a table, one in the store as Airflow's processes do."""
        os.environ.update(self.variables)
        for name, connection in self.connections.items():
            os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(connection)
        return open_table(path, self.conn_id or None)
