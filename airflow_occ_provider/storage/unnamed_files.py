"""Data files that no commit names, although readers see them or will."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from posixpath import dirname

from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot

# Base files only: the name of a log file may have the time of an older base file in it.
_BASE_FILE = re.compile(r"[^._][^_]*_\d+-\d+-\d+_(\d{14,17})\.(?:parquet|orc|hfile)")


@dataclass(frozen=True, slots=True)
class UnnamedFiles:
    """Base files of one requested time that no commit names.

    :param paths: relative to the table's base path, sorted.
    :param are_visible: whether readers treat them as committed now: they are older than the active
        timeline, or of one of its completed commits.
    """

    instant: str
    paths: tuple[str, ...]
    are_visible: bool


def unnamed_files(
    snapshot: Snapshot, commits: Mapping[Instant, CommitMetadata]
) -> Iterator[UnnamedFiles]:
    """Yield the base files that no commit names.

    Only the partitions of the active timeline's commits are listed.

    What a rollback that is still listed takes back is left out: its residue is found by its markers.
    The history is read only if there are files that are older than the timeline.

    :param commits: the completed writes of the snapshot, without those that cannot be decoded.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    partitions = {dirname(path) for metadata in commits.values() for path in metadata.paths}
    listed = map_concurrently(snapshot.data_files, partitions)
    later = snapshot.reload()  # an instant is requested before it writes a file
    by_time = defaultdict[str, list[str]](list)
    for partition, names in listed.items():
        for name in names:
            match = _BASE_FILE.fullmatch(name)
            if match:
                by_time[match[1]].append(f"{partition}/{name}".lstrip("/"))
    named = {instant.time: frozenset(metadata.paths) for instant, metadata in commits.items()}
    rolled_back = {time for _, times in later.rollbacks() for time in times}
    first = min((write.time for write in later.timeline.completed_writes()), default="")
    unknown = [time for time in by_time if not later.timeline.find(time) and time not in rolled_back]
    past = _archived_times(later, [time for time in unknown if time < first])
    for time, paths in sorted(by_time.items()):
        if time in named:
            loose = [path for path in paths if path not in named[time]]
        elif time in unknown and time not in past:
            loose = paths
        else:
            continue
        if loose:
            yield UnnamedFiles(time, tuple(sorted(loose)), time in named or time < first)


def _archived_times(snapshot: Snapshot, times: Iterable[str]) -> frozenset[str]:
    """Return those of some times that the history has, or is too short to have."""
    wanted = frozenset(times)
    if not wanted or not snapshot.has_history():
        return frozenset()
    history = snapshot.history()
    oldest = min((instant.time for instant in history), default="")
    return frozenset(instant.time for instant in history if instant.is_write) | {
        time for time in wanted if not oldest or time < oldest
    }
