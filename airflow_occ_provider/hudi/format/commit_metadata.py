"""Commit metadata: what a commit wrote, or an inflight instant plans to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.record import Content, read_record

COMMIT_FIELDS = frozenset(
    {
        *("operationType", "extraMetadata", "partitionToWriteStats", "partitionToReplaceFileIds"),
        *("fileId", "path", "prevCommit", "numInserts", "numUpdateWrites", "numDeletes"),
    }
)
"""The fields that ``read_commit`` uses: each of 100,000 file groups may have 30 fields."""

_CHANGES = ("numInserts", "numUpdateWrites", "numDeletes")


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
