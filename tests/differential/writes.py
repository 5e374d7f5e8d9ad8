"""The writes of a pair, run on real Spark and Hudi."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.differential.pairs import PARTITIONS, Pair, Template, Write

Row = tuple[str, str, int]
_KEYS = 3
_STRATEGIES = {
    "simple": "SimpleConcurrentFileWritesConflictResolutionStrategy",
    "bucket": "BucketIndexConcurrentFileWritesConflictResolutionStrategy",
    "prefer_writer": "PreferWriterConflictResolutionStrategy",
}
_ALWAYS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.datasource.compaction.async.enable": "true",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.clustering.plan.strategy.small.file.limit": "1000000000",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.provider": "differential.LatchedLockProvider",
    "hoodie.write.lock.client.num_retries": "0",
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.bucket.index.num.buckets": "4",
} | {
    f"hoodie.{name}.parallelism": "1"
    for name in (
        *("upsert.shuffle", "insert.shuffle", "bulkinsert.shuffle", "delete.shuffle"),
        *("bloom.index", "simple.index", "global.simple.index", "finalize.write"),
        *("markers.delete", "rollback", "file.listing", "archive.delete", "metadata.rollback"),
    )
}


# A client of 0.15 made without a DataFrame needs what is a default elsewhere.
_PAYLOAD = {
    "hoodie.datasource.write.payload.class": (
        "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
    )
}


def table_options(template: Template) -> dict[str, str]:
    """Return the options of every writer of a table."""
    options = {
        **_ALWAYS,
        "hoodie.datasource.write.table.type": template.kind,
        "hoodie.metadata.enable": str(template.metadata_table).lower(),
        "hoodie.index.type": "BUCKET" if template.bucket else "SIMPLE",
    }
    if template.version is not None:
        options["hoodie.write.table.version"] = str(template.version)
    return options


def pair_options(pair: Pair, writer: str) -> dict[str, str]:
    """Return the options of one writer of a pair; its commit is signed with the writer's name."""
    strategy = f"org.apache.hudi.client.transaction.{_STRATEGIES[pair.strategy]}"
    options = {
        **table_options(pair.template),
        "hoodie.index.type": pair.index_type,
        "hoodie.write.lock.conflict.resolution.strategy": strategy,
        "hoodie.parquet.small.file.limit": str(104857600 if pair.small_files else 0),
        "hoodie.write.markers.type": pair.markers,
        "hoodie.embed.timeline.server": str(pair.markers == "TIMELINE_SERVER_BASED").lower(),
        "_differential_writer": signature(writer),
    }
    if pair.early != "off":
        early = "hoodie.write.concurrency.early.conflict"
        options[f"{early}.detection.enable"] = "true"
        options[f"{early}.check.commit.conflict"] = str(pair.early == "commits").lower()
    return options


def signature(writer: str) -> str:
    """Return the signature in the extra metadata of a writer's commits."""
    return f"signed by {writer}"


def batch_rows(groups: Iterable[tuple[str, str]], value: int) -> list[Row]:
    """Return rows for all keys of the given (partition, batch)."""
    return [(f"{p}-{b}-{n}", p, value) for p, b in groups for n in range(_KEYS)]


def write_rows(write: Write, writer: str) -> list[Row]:
    """Return a writer's rows; two writers share one of their new keys in each partition."""
    new = [(f"{p}-{writer}-{n}", p, 7) for p in write.inserts for n in range(_KEYS - 1)]
    both = [(f"{p}-both", p, 7) for p in write.inserts]
    return [*batch_rows(write.groups, 7), *new, *both]


def save(
    spark: Any, table: Path | str, operation: str, rows: list[Row], options: Mapping[str, str]
) -> None:
    """Write rows as a DataFrame.

    :param operation: Hudi's name of the operation; ``delete_partition`` drops the rows' partitions.
    """
    given = {**options, "hoodie.datasource.write.operation": operation}
    if operation == "delete_partition":
        given["hoodie.datasource.write.partitions.to.delete"] = ",".join(sorted({p for _, p, _ in rows}))
    values = ", ".join(f"('{key}', '{partition}', {value})" for key, partition, value in rows)
    frame = spark.sql(f"select * from values {values} as t(k, p, v)")
    frame.write.format("hudi").options(**given).mode("append").save(str(table))


def run_service(spark: Any, hudi: str, table: Path, write: Write, options: Mapping[str, str]) -> None:
    """Plan a clustering or compaction, and run it unless only the plan is wanted."""
    service, _, plan_only = write.operation.partition("_")
    partitions = [p for p in write.partitions if p in PARTITIONS] or [PARTITIONS[0]]
    given = {
        **_PAYLOAD,
        **options,
        "hoodie.clustering.plan.strategy.partition.selected": ",".join(partitions),
    }
    jvm = spark._jvm
    client = jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
        spark.sparkContext._jsc, _SCHEMA, str(table), "t", _java_map(jvm, given)
    )
    try:
        none = jvm.org.apache.hudi.common.util.Option.empty()
        schedule = client.scheduleClustering if service == "clustering" else client.scheduleCompaction
        instant = schedule(none)
        if not instant.isPresent():
            raise NothingPlannedError(service)
        if not plan_only:
            _execute(jvm, hudi, client, service, instant.get())
    finally:
        client.close()


class NothingPlannedError(RuntimeError):
    """Hudi found nothing to cluster or compact."""


_SCHEMA = (
    '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":['
    '{"name":"k","type":["null","string"],"default":null},'
    '{"name":"p","type":["null","string"],"default":null},'
    '{"name":"v","type":["null","int"],"default":null}]}'
)


def _execute(jvm: Any, hudi: str, client: Any, service: str, instant: str) -> None:
    if service == "clustering":
        client.cluster(instant, True)
        return
    result = client.compact(instant)
    written = result if hudi >= "1.1" else result.getCommitMetadata().get()
    client.commitCompaction(instant, written, jvm.org.apache.hudi.common.util.Option.empty())


def _java_map(jvm: Any, values: Mapping[str, str]) -> Any:
    result = jvm.java.util.HashMap()
    for key, value in values.items():
        result.put(key, value)
    return result
