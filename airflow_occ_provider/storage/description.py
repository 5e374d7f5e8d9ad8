"""Describes an instant as JSON values, as the command line prints it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.snapshot import Snapshot


def describe(
    snapshot: Snapshot, instant: Instant, heartbeats: Mapping[str, int], *, files: bool
) -> dict[str, Any]:
    """Return the description of one instant, in Hudi's terms.

    :param files: whether to list file groups, as [partition, file id], and markers.
    :raises TableUnreadableError: if a file cannot be read or decoded.
    """
    metadata = _metadata(snapshot, instant)
    return {
        "time": instant.time,
        "action": instant.action,
        "state": instant.state.value,
        "completion_time": instant.completion_time,
        "operation": metadata.operation_type if metadata else None,
        **(_files(snapshot, instant, metadata) if files else {}),
        "heartbeat": heartbeats.get(instant.time),
        "extra": {k: v for k, v in metadata.extra.items() if k.startswith("_")} if metadata else {},
        "archived": instant.archived,
        "damage": snapshot.reader.fault(instant.file_name)
        or snapshot.reader.fault(instant.inflight_file or ""),
    }


def _files(snapshot: Snapshot, instant: Instant, metadata: CommitMetadata | None) -> dict[str, Any]:
    markers = None if instant.completed else snapshot.markers(instant.time)
    planned = None if instant.completed else snapshot.reader.planned(instant)
    return {
        "written": _pairs(metadata.file_groups if metadata else ()),
        "replaced": _pairs(metadata.replaced if metadata else ()),
        "planned": _pairs(planned or ()),
        "markers": _pairs({marker.file_group for marker in markers}) if markers else None,
    }


def _metadata(snapshot: Snapshot, instant: Instant) -> CommitMetadata | None:
    if not instant.is_write:
        return None
    return snapshot.reader.commit(instant) if instant.completed else snapshot.reader.profile(instant)


def _pairs(groups: Iterable[FileGroupId]) -> list[list[str]]:
    return sorted(map(list, groups))
