"""A load of remote drivers: applications of a real YARN, each with a lease and a table's write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tests.bench.load import Load

VARIABLE = "BENCH_REMOTE"
LOCK_CONN_ID = "bench_lock"


@dataclass(frozen=True)
class RemoteLoad:
    """A load of triggers, one for each driver.

    :param root: folder of the tables and of the triggers' arguments.
    :param hosts: of the ZooKeeper with the leases.
    :param drivers: how many.
    :param tables: DAGs that are expected beside the probe's.
    """

    root: str
    hosts: str
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

    def writes(self) -> Iterator[tuple[str, str]]:
        """Yield table and instant of each driver's write."""
        lake = self.lake
        for number in range(lake.tables):
            for instant in lake.instants():
                yield str(lake.table(number)), instant

    def keep(self, triggers: list[dict[str, Any]]) -> None:
        """Keep the arguments of the triggers for the DAG."""
        self.arguments.write_text(json.dumps(triggers))

    def environment(self) -> Mapping[str, str]:
        lock = {"conn_type": "hudi_zookeeper_lock", "host": self.hosts}
        given = {**lock, "extra": {"base_path": "/hudi/locks"}}
        return {
            VARIABLE: json.dumps(asdict(self)),
            f"AIRFLOW_CONN_{LOCK_CONN_ID.upper()}": json.dumps(given),
        }

    @classmethod
    def from_environment(cls) -> Self:
        return cls(**json.loads(os.environ[VARIABLE]))
