"""One instant as its rivals see it: the file groups that it is known to touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId, Marker
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant, State, moment_ms
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, Liveness

OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})
_PREPPED = "_PREPPED"  # such as UPSERT_PREPPED, whose records come with their locations
_SERVICES = {"compaction": "COMPACT", "logcompaction": "LOG_COMPACT"}
# A file that is merged into or appended to existed before.
_ON_EXISTING = frozenset({"MERGE", "APPEND"})


@dataclass(frozen=True, slots=True)
class ConcurrentOperation:
    """One instant, the file groups that it touches, and when it reached each state.

    The times are those at which its files were written, by the storage's clock.

    :param operation_type: Hudi's operation type, such as ``UPSERT`` or ``COMPACT``; ``UNKNOWN`` while
        only requested.
    :param file_groups: the file groups that it certainly touches.
    :param existing: the file groups among these that existed before it.
    :param bases: the instant on which an existing file group was built when the write planned it.
    :param has_fresh_bases: whether these are the newest that it can have read. A record index names the
        instant that inserted a record, SQL's ``UPDATE`` and ``DELETE`` the one that wrote it last, and
        not the one that wrote its file (both seen on 1.2.0).
    :param based: the file groups that got a base file (not only a log file).
    :param overwrites: the partitions of which it replaces every existing file group, not named yet.
    :param overwrites_table: whether it replaces every partition in this way.
    :param may_touch_more: whether it may touch existing file groups that nothing names yet.
    :param adds_to: the partitions that get new records, in new file groups or in small existing ones.
    :param marked: the file groups that it has begun to write, by its markers.
    :param live: whether its writer is alive, or the instant is completed.
    :param has_heartbeat: whether its writer has a heartbeat, maybe expired, or the instant is completed.
    :param stat_fields: field names of its write statistics, which show a pending write's release;
        ``None`` without any.
    :param unseen: requested times of writes that are known to have completed after its comparison point.
    """

    instant: Instant
    operation_type: str = "UNKNOWN"
    file_groups: frozenset[FileGroupId] = frozenset()
    existing: frozenset[FileGroupId] = frozenset()
    bases: Mapping[FileGroupId, str] = field(default_factory=dict)
    has_fresh_bases: bool = True
    based: frozenset[FileGroupId] = frozenset()
    replaced: frozenset[FileGroupId] = frozenset()
    overwrites: frozenset[str] = frozenset()
    overwrites_table: bool = False
    may_touch_more: bool = False
    adds_to: frozenset[str] = frozenset()
    marked: frozenset[FileGroupId] = frozenset()
    live: bool = True
    has_heartbeat: bool = True
    stat_fields: frozenset[str] | None = None
    unseen: frozenset[str] = frozenset()
    requested_ms: int | None = None
    inflight_ms: int | None = None
    completed_ms: int | None = None

    @property
    def is_table_service(self) -> bool:
        """Whether it is a compaction or clustering, pending or completed."""
        return self.instant.action in TABLE_SERVICE_ACTIONS or self.operation_type in {
            "COMPACT",
            "LOG_COMPACT",
            "CLUSTER",
        }

    def overwrites_partition(self, partition: str) -> bool:
        """Whether it replaces all that exists in the partition."""
        return self.overwrites_table or partition in self.overwrites


def is_before(first_ms: int | None, second_ms: int | None) -> bool:
    """Whether both moments are known and the first one is earlier."""
    return first_ms is not None and second_ms is not None and first_ms < second_ms


def completed_since_request(ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool | None:
    """Return whether a completed rival completed after a write was requested.

    Before table version 8 the times of files show it, in whatever zones their writers and this process
    run.

    :returns: ``None`` if that is not known.
    """
    stamp = rival.instant.completion_stamp
    if stamp is not None:
        return stamp > ours.instant.time
    requested_ms = moment_ms(ours.instant.time, ours.requested_ms)
    if requested_ms is None or rival.completed_ms is None:
        return None
    return rival.completed_ms > requested_ms


class Times(NamedTuple):
    """The times at which an instant's files were written, by the storage's clock."""

    requested_ms: int | None = None
    inflight_ms: int | None = None
    completed_ms: int | None = None


def completed_operation(
    instant: Instant, metadata: CommitMetadata, profile: CommitMetadata | None, times: Times
) -> ConcurrentOperation:
    """Describe a completed write by its commit metadata.

    :param profile: content of its inflight file, if that still exists and is not empty.
    """
    named = profile.file_groups if profile else frozenset()
    return ConcurrentOperation(
        instant,
        operation_type=metadata.operation_type,
        file_groups=metadata.file_groups | metadata.replaced,
        existing=named | metadata.changed(instant.time),
        based=frozenset(filter(None, map(_based, metadata.paths))),
        replaced=metadata.replaced,
        **times._asdict(),
    )


def planned_operation(
    instant: Instant, planned: frozenset[FileGroupId], times: Times
) -> ConcurrentOperation:
    """Describe a pending compaction or clustering by its plan."""
    operation_type = _SERVICES.get(instant.action, "CLUSTER")
    return ConcurrentOperation(
        instant,
        operation_type=operation_type,
        file_groups=planned,
        existing=planned,
        replaced=planned if operation_type == "CLUSTER" else frozenset(),
        **times._asdict(),
    )


def pending_operation(
    instant: Instant,
    profile: CommitMetadata | None,
    markers: Iterable[Marker],
    times: Times,
    heartbeat: Heartbeat | None = None,
    *,
    has_fresh_bases: bool = True,
) -> ConcurrentOperation:
    """Describe a pending write by its workload profile and its markers.

    If all markers are of new base files, an empty inflight file belongs to a bulk insert, which only
    adds file groups. Otherwise an empty file means nothing: it may not be written completely yet, or
    belong to a replacecommit or to Flink (Hudi 1.2.0,
    ``BaseCommitActionExecutor.saveWorkloadProfileMetadataToInflight``).

    :param profile: content of its inflight file; ``None`` if that is empty or missing.
    :param heartbeat: of its writer, which otherwise counts as alive.
    :param has_fresh_bases: ``False`` if it may have found its file groups by a record index.
    """
    made = tuple(markers)
    marked = frozenset(marker.file_group for marker in made)
    plan = profile or CommitMetadata("BULK_INSERT" if _adds_only(instant, made) else "UNKNOWN")
    operation_type = plan.operation_type
    existing = plan.file_groups | {marker.file_group for marker in made if marker.kind in _ON_EXISTING}
    return ConcurrentOperation(
        instant,
        operation_type=operation_type,
        file_groups=existing | marked,
        existing=existing,
        bases=plan.bases,
        has_fresh_bases=has_fresh_bases and not operation_type.endswith(_PREPPED),
        overwrites=plan.written_partitions if operation_type in OVERWRITES else frozenset(),
        overwrites_table=operation_type == "INSERT_OVERWRITE_TABLE",
        may_touch_more=operation_type in {"UNKNOWN", "DELETE_PARTITION"},
        marked=marked,
        live=heartbeat is None or heartbeat.live,
        has_heartbeat=heartbeat is None or heartbeat.liveness is not Liveness.NONE,
        stat_fields=plan.stat_fields,
        adds_to=plan.insert_partitions,
        **times._asdict(),
    )


def _adds_only(instant: Instant, markers: tuple[Marker, ...]) -> bool:
    if instant.state is not State.INFLIGHT or instant.action == "replacecommit":
        return False  # a profile of a requested instant may be younger than the listing
    creates = (marker.kind == "CREATE" and not marker.data_file.startswith(".") for marker in markers)
    return bool(markers) and all(creates)


def _based(path: str) -> FileGroupId | None:
    partition, _, name = path.rpartition("/")
    is_log = name.startswith(".")
    return None if is_log else (partition, name.partition("_")[0])
