"""Metadata files: commits, plans, cleans, rollbacks; Avro, JSON or of layout 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from airflow_occ_provider.hudi.format.avro import AVRO_MAGIC, MAX_VALUES, Fields, TooLargeError, decode
from airflow_occ_provider.hudi.format.file_group import FileGroupId, file_id

Content: TypeAlias = bytes | Mapping[str, Any]
"""A file's content, or the decoded record from an archive of layout 1."""

_OF_A_STATISTIC = {"fileId", "path", "prevCommit", "numWrites", "partitionPath"}
_OF_A_RELEASE = {"prevBaseFile", "totalLogBlocksSize"}  # their presence shows the release
COMMIT_FIELDS = frozenset(
    {
        *("operationType", "extraMetadata", "partitionToWriteStats", "partitionToReplaceFileIds"),
        *("fileId", "path", "prevCommit", "numInserts", "numUpdateWrites", "numDeletes"),
    }
)
"""The fields that ``read_commit`` uses: each of 100,000 file groups may have 30 fields."""
ROLLBACK_FIELDS = frozenset(
    {
        *("commitsRollback", "instantsRollback", "commitTime", "action", "partitionMetadata"),
        *("successDeleteFiles", "failedDeleteFiles", "rollbackLogFiles", "logFilesFromFailedCommit"),
        *("instantToRollback", "RollbackRequests", "partitionPath"),
        *("filesToBeDeleted", "logBlocksToBeDeleted"),
    }
)
"""The fields that ``read_rolled_back`` uses."""
_CHANGES = ("numInserts", "numUpdateWrites", "numDeletes")
_BEGUN = ("successDeleteFiles", "failedDeleteFiles", "rollbackLogFiles", "logFilesFromFailedCommit")
PLAN_FIELDS = frozenset(
    {"operations", "clusteringPlan", "inputGroups", "slices", "partitionPath", "fileId"}
)
"""The fields that the readers of plans use."""


def is_self_describing(content: Content) -> bool:
    """Whether content is an Avro container or JSON, not Avro without its schema.

    If Hudi 1.0.2 upgraded a table from version 6, its history holds Avro without a schema; Hudi cannot
    read it either (``tests/golden/tables/1.0.2/upgraded``).
    """
    if isinstance(content, Mapping):
        return True
    return content[:4] == AVRO_MAGIC or content.lstrip()[:1] == b"{"


def read_record(content: Content, fields: Fields = None) -> Mapping[str, Any]:
    """Decode a metadata file.

    :param fields: the names of the fields to keep; ``None`` for all.
    :raises ValueError: if the content is not a record, or is cut off.
    """
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
    """Drop unused fields from a write statistic; return other objects unchanged."""
    if value.keys() >= _OF_A_STATISTIC:
        return {key: value[key] for key in (fields | _OF_A_RELEASE) & value.keys()}
    return value


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The part of ``HoodieCommitMetadata`` that names what a commit touches.

    An inflight instant's file holds one too, its workload profile: the existing file groups that it
    will touch, and the partitions that get new ones (Hudi 1.2.0, ``BaseCommitActionExecutor``).

    :param operation_type: Hudi's operation type in upper case, such as ``UPSERT``.
    :param records: inserted + updated + deleted records.
    :param extra: the extra metadata; our signature is in its keys that start with ``_``.
    :param written_partitions: partitions with write statistics, with or without a named file group.
    :param insert_partitions: partitions that get new records whose file group is not named yet.
    :param bases: the instant on which each file group was built, if the statistics name one.
    :param paths: the files written, relative to the table's base path.
    :param stat_fields: field names of its write statistics, ``None`` without any.
    """

    operation_type: str
    file_groups: frozenset[FileGroupId] = frozenset()
    replaced: frozenset[FileGroupId] = frozenset()
    records: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)
    written_partitions: frozenset[str] = frozenset()
    insert_partitions: frozenset[str] = frozenset()
    bases: Mapping[FileGroupId, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    stat_fields: frozenset[str] | None = None

    @property
    def partitions(self) -> tuple[str, ...]:
        """Partition paths written or replaced, sorted; empty if unpartitioned."""
        return tuple(sorted({partition for partition, _ in self.file_groups | self.replaced}))

    def changed(self, time: str) -> frozenset[FileGroupId]:
        """Return the file groups that it changed or replaced: they existed before it.

        A group that begins with a log file names the commit itself as its base (Hudi 1.2.0,
        ``HoodieAppendHandle``).

        :param time: requested time of the commit.
        """
        return self.replaced.union(group for group, base in self.bases.items() if base != time)

    @property
    def wrote_nothing(self) -> bool:
        """Whether it is a commit without a file."""
        return not (self.file_groups or self.replaced)

    @property
    def is_table_service(self) -> bool:
        """Whether it was committed by a table service, not by a writer."""
        return self.operation_type in {"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"}


def read_commit(content: Content) -> CommitMetadata:
    """Decode a commit, deltacommit or replacecommit, completed or inflight.

    The file is an Avro container since table version 8, and JSON before (Hudi 1.2.0,
    ``CommitMetadataSerDeV2`` and ``V1``).

    :raises ValueError: for content that is neither, or is cut off.
    """
    record = read_record(content, COMMIT_FIELDS)
    stats = [
        ((partition, stat.get("fileId") or ""), stat)
        for partition, written in (record.get("partitionToWriteStats") or {}).items()
        for stat in written or ()
    ]
    shared: dict[str, str] = {}  # the same few instants, 100,000 times
    bases = ((g, str(stat.get("prevCommit"))) for g, stat in stats if g[1])
    return CommitMetadata(
        operation_type=record.get("operationType") or "UNKNOWN",
        file_groups=frozenset(group for group, _ in stats if group[1]),
        replaced=frozenset(
            (partition, file_id)
            for partition, file_ids in (record.get("partitionToReplaceFileIds") or {}).items()
            for file_id in file_ids or ()
        ),
        records=sum(int(stat.get(key) or 0) for _, stat in stats for key in _CHANGES),
        extra=dict(record.get("extraMetadata") or {}),
        written_partitions=frozenset(record.get("partitionToWriteStats") or {}),
        insert_partitions=frozenset(g[0] for g, stat in stats if not g[1] and stat.get("numInserts")),
        bases={group: shared.setdefault(base, base) for group, base in bases if base.isdigit()},
        paths=tuple(sorted(stat["path"] for _, stat in stats if stat.get("path"))),
        stat_fields=frozenset(stats[0][1]) if stats else None,
    )


def read_compaction_plan(content: Content) -> frozenset[FileGroupId]:
    """Return the file groups of a ``HoodieCompactionPlan``, also of a log compaction.

    :raises ValueError: if the content is not a plan, or is cut off.
    """
    operations = read_record(content, PLAN_FIELDS).get("operations") or ()
    return frozenset((op.get("partitionPath") or "", op.get("fileId") or "") for op in operations)


def read_clustering_plan(content: Content) -> frozenset[FileGroupId] | None:
    """Return the file groups of a clustering plan; ``None`` if there is none.

    Overwrites have an empty file, or a record without a plan.

    :raises ValueError: if the content is not such a record, or is cut off.
    """
    plan = read_record(content, PLAN_FIELDS).get("clusteringPlan") if content else None
    if not plan:
        return None
    slices = (piece for group in plan.get("inputGroups") or () for piece in group.get("slices") or ())
    return frozenset((piece.get("partitionPath") or "", piece.get("fileId") or "") for piece in slices)


def read_plan_extra(content: Content) -> Mapping[str, str]:
    """Return the extra metadata of a clustering plan.

    :raises ValueError: if the content is not a record, or is cut off.
    """
    return dict(read_record(content, frozenset({"extraMetadata"})).get("extraMetadata") or {})


def read_rolled_back_times(content: bytes) -> frozenset[str]:
    """Return the requested times of the instants that a rollback or restore names.

    The plan of a rollback may name none yet.

    :raises ValueError: if the content is not a plan or metadata, or is cut off.
    """
    record = read_record(content) if content else {}
    named = [
        record.get("instantToRollback"),
        *(record.get("instantsRollback") or ()),
        *(record.get("commitsRollback") or ()),
        *(record.get("instantsToRollback") or ()),  # plain times in a completed restore
        *(record.get("hoodieRestoreMetadata") or ()),
    ]
    times = (instant.get("commitTime") if isinstance(instant, dict) else instant for instant in named)
    return frozenset(filter(None, times))


class RolledBack(NamedTuple):
    """What a rollback takes back.

    :param actions: of the instants that it names, by their requested times.
    :param file_groups: of the files that they had begun.
    """

    actions: Mapping[str, str]
    file_groups: frozenset[FileGroupId]


def read_rolled_back(content: Content) -> RolledBack:
    """Return what a rollback takes back, by its metadata or its plan.

    :raises ValueError: if the content is neither, or is cut off.
    """
    record = read_record(content, ROLLBACK_FIELDS)
    named = [*(record.get("instantsRollback") or ()), record.get("instantToRollback")]
    actions = {instant["commitTime"]: instant["action"] for instant in filter(None, named)}
    begun = [
        (partition, path)
        for partition, files in (record.get("partitionMetadata") or {}).items()
        for kind in _BEGUN
        for path in files.get(kind) or ()
    ]
    planned = [
        (request["partitionPath"], path)
        for request in record.get("RollbackRequests") or ()
        for kind in ("filesToBeDeleted", "logBlocksToBeDeleted")
        for path in request.get(kind) or ()
    ]
    return RolledBack(
        dict.fromkeys(record.get("commitsRollback") or (), "commit") | actions,
        frozenset((partition, file_id(path)) for partition, path in (*begun, *planned)),
    )


def read_deleted_names(content: bytes) -> frozenset[str]:
    """Return the names of the data files that a clean, rollback or restore deletes.

    :raises ValueError: if the content is neither, or is cut off.
    """
    record = read_record(content)
    steps = (record.get("hoodieRestoreMetadata") or {"": [record]}).values()
    rollbacks = [rollback for step in steps for rollback in step or ()]
    done = [
        partition
        for rollback in rollbacks
        for partition in (rollback.get("partitionMetadata") or {}).values()
    ]
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
