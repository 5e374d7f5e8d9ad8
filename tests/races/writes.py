"""The jobs that race: plain Hudi writes of a few rows, on one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.writer.options import zookeeper_lock_options
from tests.differential.writes import Row, save
from tests.support.writers import stack_lock_options

PARTITIONS = ("a", "b", "c", "d")
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
    "hoodie.index.type": "SIMPLE",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.archive.automatic": "false",
    # Two writers that clean at once make one job fail after its commit; that is not tested here.
    "hoodie.clean.automatic": "false",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
    # A new key never extends an existing file: each write makes its own file groups.
    "hoodie.parquet.small.file.limit": "0",
} | {
    f"hoodie.{name}.parallelism": "1"
    for name in ("upsert.shuffle", "insert.shuffle", "delete.shuffle", "simple.index", "finalize.write")
}


class Table:
    """A Hudi table of rows (key, partition, value).

    :param spark: the session.
    :param path: its base path.
    :param stack: whose lock service holds Hudi's lock.
    """

    def __init__(self, spark: Any, path: str, stack: EmbeddedStack) -> None:
        self.spark = spark
        self.path = path
        self.options = {**OPTIONS, **_lock_options(stack, path)}

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.rpartition("/")[2]

    def write(self, rows: Iterable[Row], operation: str = "upsert") -> None:
        """Write rows with one of Hudi's operations."""
        save(self.spark, self.path, operation, list(rows), self.options)

    def register(self, name: str) -> None:
        """Give the table a name in the catalog that all sessions share."""
        self._session().sql(f"CREATE TABLE {name} USING hudi LOCATION '{self.path}'")

    def run(self, statement: str) -> None:
        """Run a statement of SQL in a session of its own."""
        self._session().sql(statement)

    def _session(self) -> Any:
        session = self.spark.newSession()
        catalog = "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
        for key, value in {**self.options, "spark.sql.catalog.spark_catalog": catalog}.items():
            session.conf.set(key, value)
        return session

    def rows(self) -> list[Row]:
        """Return the rows as a reader sees them now."""
        self.spark.catalog.clearCache()
        frame = self.spark.read.format("hudi").load(self.path).select("k", "p", "v")
        return [(row.k, row.p, row.v) for row in frame.collect()]

    def duplicates(self) -> list[str]:
        """Return the keys that are in the table more than once."""
        counted = Counter((key, partition) for key, partition, _ in self.rows())
        return sorted(key for (key, _), count in counted.items() if count > 1)


def _lock_options(stack: EmbeddedStack, path: str) -> dict[str, str]:
    if stack.lock != "zookeeper":
        return stack_lock_options(stack, path)
    return zookeeper_lock_options(
        stack.zookeeper.hosts,
        "/races/locks",
        session_timeout_ms=20_000,
        connection_timeout_ms=15_000,
        wait_time_ms=60_000,
        num_retries=20,
    )
