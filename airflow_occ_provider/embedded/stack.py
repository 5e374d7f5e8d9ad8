"""The services for a test of concurrent Hudi writers, in one ``with`` block."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal, Self

from airflow_occ_provider.embedded.bundle import hudi_release
from airflow_occ_provider.embedded.metastore import EmbeddedMetastore
from airflow_occ_provider.embedded.object_store import EmbeddedObjectStore
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper


class EmbeddedStack:
    """A running lock service and a ``spark-submit`` environment.

    :param folder: folder of all files; ``None`` for a scratch folder that is removed at the end.
    :param hudi_version: release of Hudi's bundle, see ``find_bundle``.
    :param lock: the lock service to run; ``storage`` is a folder, and no service.
    :param store: an object store for the tables of the jobs, which the caller starts and stops.
    """

    def __init__(
        self,
        folder: Path | None = None,
        hudi_version: str | None = None,
        *,
        lock: Literal["zookeeper", "metastore", "storage"] = "zookeeper",
        store: EmbeddedObjectStore | None = None,
    ) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="airflow_occ_stack_"))
        self.hudi_version = hudi_version or hudi_release()
        self._bundle_version = hudi_version
        self.lock = lock
        self.store = store
        self.zookeeper = EmbeddedZookeeper(self.folder / "zookeeper")
        self.metastore = EmbeddedMetastore(self.folder / "metastore")
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self.environment = spark_environment(self.folder / "spark", self._bundle_version, self.store)
            if self._service:
                self._service.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def lock_connection(self) -> dict[str, Any]:
        """The Airflow connection to the lock service, as fields."""
        if self.lock == "metastore":
            extra: dict[str, Any] = {"heartbeat_interval_ms": self.metastore.lock_timeout_s * 1000 // 3}
            return {"conn_type": "hudi_metastore_lock", "host": self.metastore.uris, "extra": extra}
        if self.lock == "storage":
            return {"conn_type": "hudi_storage_lock", "host": str(self.folder / "leases"), "extra": {}}
        extra = {"base_path": "/hudi/locks"}
        return {"conn_type": "hudi_zookeeper_lock", "host": self.zookeeper.hosts, "extra": extra}

    @property
    def _service(self) -> EmbeddedZookeeper | EmbeddedMetastore | None:
        if self.lock == "storage":
            return None
        return self.metastore if self.lock == "metastore" else self.zookeeper

    def stop(self) -> None:
        """Stop the lock service; safe to repeat."""
        if self._service:
            self._service.stop()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
