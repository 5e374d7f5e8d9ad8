"""A small table that a scenario writes with real Hudi, up to the state it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
MULTI_WRITER = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.provider": _LOCK,
    "hoodie.clean.automatic": "false",
}
VALIDATORS = "org.apache.hudi.client.validator"
REFUSED = {
    "hoodie.precommit.validators": f"{VALIDATORS}.SqlQuerySingleResultPreCommitValidator",
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
}
_DEFAULTS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.datasource.compaction.async.enable": "false",
    "hoodie.compact.inline": "false",
    **{f"hoodie.{kind}.shuffle.parallelism": "2" for kind in ("insert", "upsert", "bulkinsert")},
    "hoodie.delete.shuffle.parallelism": "2",
}


@dataclass
class GoldenTable:
    """One table that a scenario writes.

    :param spark: a session of the Hudi release that writes.
    :param hudi_version: that release.
    :param path: base path.
    :param options: options of every write, over the defaults.
    """

    spark: SparkSession
    hudi_version: str
    path: Path
    options: dict[str, str] = field(default_factory=dict)
    metadata_table: bool = False
    checksums: bool = False

    @property
    def modern(self) -> bool:
        return not self.hudi_version.startswith("0.")

    @property
    def name(self) -> str:
        return self.options.get("hoodie.table.name", self.path.name)

    def of(self, kind: str = "COPY_ON_WRITE", **options: str) -> GoldenTable:
        """Choose the table's type and options, ``a__b`` meaning ``hoodie.a.b``."""
        self.options |= {"hoodie.datasource.write.table.type": kind, **dotted(options)}
        return self

    def write(
        self,
        rows: Iterable[tuple[int, str]],
        operation: str = "upsert",
        more: dict[str, str] | None = None,
        **options: str,
    ) -> None:
        """Write rows of (id, partition) by an operation of Hudi."""
        data = [(str(number), part, 1, f"v{number}") for number, part in rows]
        frame = self.spark.createDataFrame(data, "id string, p string, ts long, v string").coalesce(2)
        self.save(frame, operation, {**(more or {}), **dotted(options)})

    def save(self, frame: Any, operation: str, options: dict[str, str]) -> None:
        """Write a data frame by an operation of Hudi."""
        chosen = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.operation": operation,
            **_DEFAULTS,
            **self.options,
            **options,
        }
        frame.write.format("hudi").options(**chosen).mode("append").save(str(self.path))

    def call(self, procedure: str, arguments: str = "", **options: str) -> list[Any]:
        """Call one of Hudi's SQL procedures on the table."""
        with self._session(dotted(options)):
            extra = f", {arguments}" if arguments else ""
            table = f"table => '{self._registered()}'"
            return self.spark.sql(f"call {procedure}({table}{extra})").collect()

    def sql(self, statement: str, **options: str) -> None:
        """Run SQL in which ``{table}`` stands for the table."""
        with self._session(dotted(options)):
            self.spark.sql(statement.format(table=self._registered())).collect()

    @contextmanager
    def client(self, **options: str) -> Iterator[Any]:
        """Yield Hudi's own write client, for what no procedure offers."""
        hudi = self.spark._jvm.org.apache.hudi  # type: ignore[union-attr]
        properties = self.spark._jvm.java.util.Properties()  # type: ignore[union-attr]
        for key, value in {**_DEFAULTS, **self.options, **dotted(options)}.items():
            properties.setProperty(key, value)
        builder = hudi.config.HoodieWriteConfig.newBuilder().withPath(str(self.path)).forTable(self.name)
        context = hudi.client.common.HoodieSparkEngineContext(self.spark._jsc)
        client = hudi.client.SparkRDDWriteClient(context, builder.withProps(properties).build())
        try:
            yield client
        finally:
            client.close()

    def java(self) -> Any:
        """The ``org.apache.hudi`` packages of the release."""
        return self.spark._jvm.org.apache.hudi  # type: ignore[union-attr]

    @contextmanager
    def _session(self, options: dict[str, str]) -> Iterator[None]:
        chosen = {**_DEFAULTS, **self.options, **options}
        chosen = {key: value for key, value in chosen.items() if not key.endswith("table.name")}
        for key, value in chosen.items():
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in chosen:
                self.spark.conf.unset(key)

    def _registered(self) -> str:
        table = f"golden_{self.path.name}"
        self.spark.sql(f"drop table if exists {table}")
        self.spark.sql(f"create table {table} using hudi location '{self.path}'")
        return table

    def completed(self, *actions: str) -> list[str]:
        """Return the requested times of completed instants of some actions, oldest first."""
        return sorted(p.name[:17] for p in self._timeline().iterdir() if p.name.endswith(actions))

    def pending(self, action: str) -> str:
        """Return the requested time of the latest instant of an action that has not completed."""
        names = [path.name for path in self._timeline().iterdir()]
        return max(n[:17] for n in names if n.endswith(f".{action}.requested"))

    def _timeline(self) -> Path:
        newer = self.path / ".hoodie" / "timeline"
        return newer if newer.is_dir() else self.path / ".hoodie"


def dotted(options: dict[str, str]) -> dict[str, str]:
    """Turn ``{"a__b": v}`` into ``{"hoodie.a.b": v}``."""
    return {f"hoodie.{key.replace('__', '.')}": value for key, value in options.items()}


def refused(table: GoldenTable, rows: list[tuple[int, str]], operation: str = "upsert") -> None:
    """Leave an uncommitted write that has written all its files, with markers and a heartbeat."""
    validator = "validation failed"
    on_log_files = "Unable to infer schema"  # where a merge-on-read slice has no base file
    fails(lambda: table.write(rows, operation, {**MULTI_WRITER, **REFUSED}), validator, on_log_files)


def fails(attempt: Callable[[], object], *saying: str) -> None:
    """Run what Hudi has to refuse; anything else is an error.

    :param attempt: the attempt.
    :param saying: what the exception, or one of its causes, must say; any of these.
    """
    try:
        attempt()
    except (Py4JJavaError, PySparkException) as error:
        if saying and not any(one in str(error) for one in saying):
            raise
        return
    raise AssertionError(f"Hudi let through what it should have refused: {saying}")


@contextmanager
def missing(files: Iterable[Path]) -> Iterator[None]:
    """Move files away for a while, so that a job that needs them fails."""
    taken = list(files)
    assert taken, "there is no such file"
    for path in taken:
        path.rename(path.with_name(f"{path.name}.away"))
    try:
        yield
    finally:
        for path in taken:
            path.with_name(f"{path.name}.away").rename(path)
