"""A load of remote drivers: each with a folder, a lease and a table's write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from airflow_occ_provider.attempts.submitter import SILENCE_FACT, Handle
from airflow_occ_provider.driver.attempt import SILENCE_S
from airflow_occ_provider.driver.contract import Grant, digest
from airflow_occ_provider.places.of_task import folder_storage
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.place import StartedPlace
from tests.bench.load import Load

VARIABLE = "BENCH_REMOTE"
LOCK_CONN_ID, STORE_CONN_ID = "bench_lock", "bench_store"


@dataclass(frozen=True)
class RemoteLoad:
    """A load of triggers, one for each driver.

    :param root: folder of the tables and of the triggers' arguments.
    :param hosts: of the ZooKeeper with the leases.
    :param folders: URL of the drivers' folders.
    :param store: the Airflow connection of their storage; empty for the local disk.
    :param drivers: how many.
    :param tables: DAGs that are expected beside the probe's.
    """

    root: str
    hosts: str
    folders: str
    store: Mapping[str, Any] = field(default_factory=dict)
    drivers: int = 200
    tables: int = 1
    lake_tables: int = 20

    @property
    def triggers(self) -> int:
        return self.drivers

    @property
    def lake(self) -> Load:
        """The tables with their writers, one for each driver."""
        return Load(self.root, tables=self.lake_tables, writers=self.drivers // self.lake_tables)

    @property
    def arguments(self) -> Path:
        """The file with the arguments of the triggers."""
        return Path(self.root) / "triggers.json"

    @property
    def conn_id(self) -> str | None:
        """The connection of the folders' storage."""
        return STORE_CONN_ID if self.store else None

    def writes(self) -> Iterator[tuple[str, str]]:
        """Yield table and instant of each driver's write."""
        lake = self.lake
        for number in range(lake.tables):
            for instant in lake.instants():
                yield str(lake.table(number)), instant

    def grant(self, number: int) -> Grant:
        """Return the grant of a driver."""
        return Grant(f"n{number}", digest(b""))

    def driver(self, number: int) -> Handle:
        """Return the handle of a driver."""
        facts = {
            "folder": f"{self.folders}/.airflow_occ/{number // self.lake.writers}/{number}/1",
            "nonce": self.grant(number).nonce,
            "payload": self.grant(number).payload,
            "storage_conn_id": self.conn_id,
            SILENCE_FACT: SILENCE_S,
        }
        return Handle(StartedPlace.name, f"driver {number}", facts)

    def folder(self, number: int) -> AttemptFolder:
        """Open the folder of a driver."""
        return folder_storage(self.conn_id).open(str(self.driver(number).facts["folder"]))

    def keep(self, triggers: list[dict[str, Any]]) -> None:
        """Keep the arguments of the triggers for the DAG."""
        self.arguments.write_text(json.dumps(triggers))

    def environment(self) -> Mapping[str, str]:
        lock = {"conn_type": "hudi_zookeeper_lock", "host": self.hosts}
        lock_connection = {**lock, "extra": {"base_path": "/hudi/locks"}}
        return {
            VARIABLE: json.dumps(asdict(self)),
            f"AIRFLOW_CONN_{LOCK_CONN_ID.upper()}": json.dumps(lock_connection),
            **({f"AIRFLOW_CONN_{STORE_CONN_ID.upper()}": json.dumps(self.store)} if self.store else {}),
        }

    @classmethod
    def from_environment(cls) -> Self:
        return cls(**json.loads(os.environ[VARIABLE]))
