"""One Spark that writes tables and runs their services, with the options of a protected driver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.site import DEFAULTS_NAME
from airflow_occ_provider.embedded.bundle import hudi_release
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import writer_options
from airflow_occ_provider.hudi.writer.table_service import Plan, PlanChoice, PlanRule, Service, choose
from airflow_occ_provider.in_driver import table_service as service_job
from airflow_occ_provider.storage.writers import pending_plans, signed_plans
from tests.differential.session import start_spark
from tests.differential.writer import Writer as Latched
from tests.differential.writes import Row, save
from tests.support.stores import Lake
from tests.support.writers import Writer, lock_options, wait_for

IDENTITY = "0f5f6f0e-5a0e-4a5e-9b0e-000000000007"
_TABLE = {
    STRATEGY_OPTION: Strategy.SIMPLE.class_name,  # explicit: writes read the last service's file, too
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
    "hoodie.index.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.datasource.compaction.async.enable": "false",
    "hoodie.compact.inline": "false",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
} | {
    f"hoodie.{name}.parallelism": "1"
    for name in (
        *("upsert.shuffle", "insert.shuffle", "simple.index", "finalize.write", "rollback"),
        *("file.listing", "markers.delete", "metadata.rollback"),
    )
}


class Rig:
    """The session, and the service drivers that are to be killed.

    :param stack: ZooKeeper, and an environment for ``spark-submit``.
    """

    def __init__(self, stack: EmbeddedStack) -> None:
        self.stack = stack
        self.lake = Lake(stack.folder, stack.store)
        self._conf = stack.folder / "hudi"
        self._conf.mkdir()
        self._lock = lock_options(stack.zookeeper.hosts)
        self._write_options({})
        os.environ["HUDI_CONF_DIR"] = str(self._conf)
        self.spark: Any = start_spark(hudi_release(), stack.folder / "session", stack.store)
        self._threads = ThreadPoolExecutor(4)

    def options(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the options that the driver of an operator gets."""
        return {**_TABLE, **writer_options(self._lock, {}), **more}

    def table(self, name: str, *, merge_on_read: bool = False, metadata_table: bool = False) -> Table:
        """Return a table with four rows in each of two partitions, in two files each."""
        kind = "MERGE_ON_READ" if merge_on_read else "COPY_ON_WRITE"
        own = {"hoodie.datasource.write.table.type": kind}
        own["hoodie.metadata.enable"] = str(metadata_table).lower()
        table = Table(self, self.lake.path(name), own)
        for start in (0, 2):
            rows = [(f"{p}-{n}", p, 0) for p in ("a", "b") for n in (start, start + 1)]
            table.write(rows, "insert")
        return table

    def serve(self, table: str, service: Service, steps: Iterable[str], more: Mapping[str, str]) -> None:
        """Run ``in_driver/table_service.py`` in this session, signed."""
        signature = Signature(IDENTITY, "dag", "run", "task")
        self._write_options({**signature.options(), **more})
        self.spark._jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration.refreshGlobalProps()
        service_job.main(table, str(service), *steps)

    def latched(self, table: str, work: Any) -> Latched:
        """Return a write on its own thread."""
        return Latched(self.spark._jvm, self._threads, table, work)

    def _write_options(self, more: Mapping[str, str]) -> None:
        lines = (f"{key}={value}\n" for key, value in self.options(more).items())
        (self._conf / DEFAULTS_NAME).write_text("".join(lines))


class Table:
    """A table of rows (key, partition, value), and its services.

    :param rig: where it lives.
    :param path: its base path.
    :param options: its own, for all that write it or run its services.
    """

    def __init__(self, rig: Rig, path: str, options: Mapping[str, str]) -> None:
        self._rig, self.path, self._options = rig, path, options
        self.hudi = rig.lake.open(path)

    def copy(self, name: str) -> Table:
        """Return the table as it is now, in another folder."""
        to = self._rig.lake.path(name)
        self._rig.lake.copy(self.path, to)
        return Table(self._rig, to, self._options)

    def write(self, rows: Iterable[Row], operation: str = "upsert", **options: str) -> None:
        """Write as a protected writer."""
        given = {**self._options, **_dotted(options)}
        save(self._rig.spark, self.path, operation, list(rows), self._rig.options(given))

    def rows(self) -> dict[str, int]:
        """Return each key's value as a reader sees it now; a key that is there twice is an error."""
        self._rig.spark.catalog.clearCache()
        frame = self._rig.spark.read.format("hudi").load(self.path).select("k", "v").collect()
        found = {row.k: row.v for row in frame}
        assert len(found) == len(frame), sorted(row.k for row in frame)
        return found

    def serve(self, service: Service, *steps: str, **options: str) -> None:
        """Run steps of a service in the session."""
        self._rig.serve(self.path, service, steps, {**self._options, **_dotted(options)})

    def killed(self, service: Service, instant: str, when: Any) -> Writer:
        """Run a plan in its own driver, and kill that with SIGKILL."""
        job = Path(service_job.__file__)
        driver = Writer(
            self._rig.stack,
            self.path,
            (str(service), f"run={instant}"),
            hudi_options={**_TABLE, **self._options},
            application=job,
            retire=False,
            file_system=self.hudi.files.file_system,
        ).start()
        wait_for("the moment to kill", when, driver)
        driver.kill()
        driver._thread.join(30)
        return driver

    def plans(self, service: Service, *, own: bool = False) -> tuple[Plan, ...]:
        """Return the pending plans as the operator sees them."""
        snapshot = self.hudi.snapshot()
        signed = signed_plans(self.hudi, snapshot, IDENTITY) if own else ()
        known = frozenset(instant.time for instant in signed)
        return pending_plans(snapshot, service, HeartbeatRule(), known)

    def choose(self, service: Service, rule: PlanRule, *, own: bool = False) -> PlanChoice:
        """Return what the operator would do."""
        return choose(self.plans(service, own=own), rule, scheduled=False)

    def files_of(self, instant: str) -> list[str]:
        """Return what the metadata folder, but for rollbacks, still has of an instant."""
        found = self.hudi.files.below(".hoodie")
        return sorted(one for one in found if instant in one and not one.startswith("metadata/"))

    def completed(self, instant: str) -> bool:
        """Whether an instant is completed."""
        found = self.hudi.snapshot().timeline.find(instant)
        return found is not None and found.completed

    def markers(self, instant: str) -> bool:
        """Whether an instant has begun to write files."""
        return any(".marker." in one for one in self.hudi.files.below(f".hoodie/.temp/{instant}"))

    def is_inflight(self, instant: str) -> bool:
        """Whether an instant has come to its inflight state."""
        found = self.hudi.snapshot().timeline.find(instant)
        return found is not None and found.inflight_file is not None


def _dotted(options: Mapping[str, str]) -> dict[str, str]:
    return {f"hoodie.{key.replace('__', '.')}": value for key, value in options.items()}
