"""What an instant's files say: commit metadata, the inflight workload profile, plans, rollbacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeGuard

from airflow_occ_provider.hudi.avro import AVRO_MAGIC, MAX_VALUES, Fields, TooLargeError, decode

FileGroup: TypeAlias = tuple[str, str]
"""(partition path, file id); the partition path of an unpartitioned table is empty."""

Content: TypeAlias = bytes | Mapping[str, Any]
"""A file's content; of an archive of layout 1, where there is no such file, the record."""

COMMIT_FIELDS = frozenset(
    {
        *("operationType", "extraMetadata", "partitionToWriteStats", "partitionToReplaceFileIds"),
        *("fileId", "path", "prevCommit", "numInserts", "numUpdateWrites", "numDeletes"),
    }
)
"""What ``read_commit`` looks at: a commit of 100,000 file groups has 30 fields for each."""

PLAN_FIELDS = frozenset(
    {"operations", "clusteringPlan", "inputGroups", "slices", "partitionPath", "fileId"}
)
"""What the readers of plans look at."""

_OF_A_STATISTIC = {"fileId", "path", "prevCommit", "numWrites", "partitionPath"}
_OF_A_RELEASE = {"prevBaseFile", "totalLogBlocksSize"}  # by their presence

TABLE_SERVICE_OPERATIONS = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The part of ``HoodieCommitMetadata`` that tells what a commit wrote, or is about to write.

    An inflight instant's file holds one too, its workload profile: the existing file groups that it
    will touch, and the partitions that get new ones (Hudi 1.2.0, ``BaseCommitActionExecutor``).

    :param operation: Hudi's operation type in upper case, such as ``UPSERT``.
    :param file_groups: the file groups written.
    :param replaced: the file groups that a replacecommit took out.
    :param records: inserted + updated + deleted records.
    :param extra: the extra metadata; our signature is in its keys that start with ``_``.
    :param written_partitions: partitions with write statistics, also where no file group is named.
    :param insert_partitions: partitions that get new records whose file group is not named yet.
    :param bases: the instant that each file group was built on, where the statistics name one.
    :param paths: the files written, relative to the table's base path.
    :param stat_fields: the names of the fields of its write statistics, ``None`` without any.
    """

    operation: str
    file_groups: frozenset[FileGroup]
    replaced: frozenset[FileGroup]
    records: int
    extra: Mapping[str, str]
    written_partitions: frozenset[str] = frozenset()
    insert_partitions: frozenset[str] = frozenset()
    bases: Mapping[FileGroup, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    stat_fields: frozenset[str] | None = None

    @property
    def partitions(self) -> tuple[str, ...]:
        """Partition paths written or replaced, sorted; the empty path is an unpartitioned table."""
        return tuple(sorted({partition for partition, _ in self.file_groups | self.replaced}))

    @property
    def is_table_service(self) -> bool:
        """Whether a table service committed, not a writer."""
        return self.operation in TABLE_SERVICE_OPERATIONS


def names_its_schema(content: Content) -> bool:
    """Whether content is an Avro container or JSON, and not bare Avro that nobody can decode.

    The history of a table that Hudi 1.0.2 upgraded from version 6 holds such; Hudi cannot read it either
    (``tests/golden/tables/1.0.2/upgraded``).
    """
    if isinstance(content, Mapping):
        return True
    return content[:4] == AVRO_MAGIC or content.lstrip()[:1] == b"{"


def read_commit(content: Content) -> CommitMetadata:
    """Decode the content of a commit, deltacommit or replacecommit file, completed or inflight.

    Files start with the Avro container's magic since table version 8 and are JSON before
    (Hudi 1.2.0, ``CommitMetadataSerDeV2`` and ``V1``).

    :param content: the whole file.
    :raises ValueError: for content that is neither, or is cut off.
    """
    record = _read_record(content, COMMIT_FIELDS)
    stats = [
        ((partition, stat.get("fileId") or ""), stat)
        for partition, written in (record.get("partitionToWriteStats") or {}).items()
        for stat in written or ()
    ]
    shared: dict[str, str] = {}  # the same few instants, 100,000 times
    bases = ((g, stat.get("prevCommit")) for g, stat in stats if g[1])
    return CommitMetadata(
        operation=record.get("operationType") or "UNKNOWN",
        file_groups=frozenset(group for group, _ in stats if group[1]),
        replaced=frozenset(_replaced(record)),
        records=sum(_changed_records(stat) for _, stat in stats),
        extra=dict(record.get("extraMetadata") or {}),
        written_partitions=frozenset(record.get("partitionToWriteStats") or {}),
        insert_partitions=frozenset(g[0] for g, stat in stats if not g[1] and stat.get("numInserts")),
        bases={group: shared.setdefault(base, base) for group, base in bases if _is_time(base)},
        paths=tuple(sorted(stat["path"] for _, stat in stats if stat.get("path"))),
        stat_fields=frozenset(stats[0][1]) if stats else None,
    )


def read_compaction_plan(content: Content) -> frozenset[FileGroup]:
    """Return the file groups of a ``HoodieCompactionPlan``, also that of a log compaction.

    :param content: the whole requested file.
    :raises ValueError: for content that is not one, or is cut off.
    """
    operations = _read_record(content, PLAN_FIELDS).get("operations") or ()
    return frozenset((op.get("partitionPath") or "", op.get("fileId") or "") for op in operations)


def read_clustering_plan(content: Content) -> frozenset[FileGroup] | None:
    """Return the file groups that a ``HoodieRequestedReplaceMetadata`` plans to cluster.

    :param content: the whole requested file; empty or without a plan for overwrites.
    :returns: ``None`` where there is no clustering plan.
    :raises ValueError: for content that is not one, or is cut off.
    """
    plan = _read_record(content, PLAN_FIELDS).get("clusteringPlan") if content else None
    if not plan:
        return None
    slices = (piece for group in plan.get("inputGroups") or () for piece in group.get("slices") or ())
    return frozenset((piece.get("partitionPath") or "", piece.get("fileId") or "") for piece in slices)


def read_rollback_victims(content: bytes) -> frozenset[str]:
    """Return the requested times that a rollback's or restore's plan or metadata names.

    :param content: the whole file of a requested, inflight or completed rollback or restore; the plan
        of a rollback may name none yet.
    :raises ValueError: for content that is not one, or is cut off.
    """
    record = _read_record(content) if content else {}
    named = [
        record.get("instantToRollback"),
        *(record.get("instantsRollback") or ()),
        *(record.get("commitsRollback") or ()),
        *(record.get("instantsToRollback") or ()),  # of a restore: plain times once it is completed
        *(record.get("hoodieRestoreMetadata") or ()),
    ]
    times = (one.get("commitTime") if isinstance(one, dict) else one for one in named)
    return frozenset(filter(None, times))


def read_deleted_names(content: bytes) -> frozenset[str]:
    """Return the names of the data files that a clean, rollback or restore deleted, or plans to.

    :param content: the whole file: a plan (requested) or what was done (completed).
    :raises ValueError: for content that is not one, or is cut off.
    """
    record = _read_record(content)
    steps = (record.get("hoodieRestoreMetadata") or {"": [record]}).values()
    rollbacks = [rollback for step in steps for rollback in step or ()]
    done = [one for rollback in rollbacks for one in (rollback.get("partitionMetadata") or {}).values()]
    planned = (record.get("filePathsToBeDeletedPerPartition") or {}).values()
    paths = [
        *(path for entry in done for path in entry.get("successDeleteFiles") or ()),
        *(path for entry in done for path in entry.get("deletePathPatterns") or ()),
        *(info["filePath"] for infos in planned for info in infos or ()),
        *(
            path
            for request in record.get("RollbackRequests") or ()
            for path in request["filesToBeDeleted"]
        ),
    ]
    return frozenset(path.rpartition("/")[2] for path in paths)


def _replaced(record: Mapping[str, Any]) -> Iterator[FileGroup]:
    for partition, file_ids in (record.get("partitionToReplaceFileIds") or {}).items():
        for file_id in file_ids or ():
            yield partition, file_id


def _is_time(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.isdigit()


def _changed_records(stat: Mapping[str, Any]) -> int:
    return sum(int(stat.get(key) or 0) for key in ("numInserts", "numUpdateWrites", "numDeletes"))


def _read_record(content: Content, fields: Fields = None) -> Mapping[str, Any]:
    if isinstance(content, Mapping):
        return content
    is_avro = content[:4] == AVRO_MAGIC
    record = decode(content, fields=fields) if is_avro else _read_json(content, fields)
    if not isinstance(record, dict):
        raise ValueError("the metadata is not a record")
    return record


def _read_json(content: bytes, fields: Fields) -> Any:
    import json

    values = sum(content.count(mark) for mark in (b"{", b"[", b","))
    if values > MAX_VALUES:
        raise TooLargeError(f"it holds more than {MAX_VALUES:,} values")
    return json.loads(content, object_hook=partial(_kept, fields) if fields else None)


def _kept(fields: frozenset[str], value: dict[str, Any]) -> dict[str, Any]:
    """Drop from a write statistic what is not looked at; other objects have keys of their own."""
    if value.keys() >= _OF_A_STATISTIC:
        return {key: value[key] for key in (fields | _OF_A_RELEASE) & value.keys()}
    return value
