"""What shows that a write has not seen an earlier one.

Its base files do, and what the metadata table lacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.finding import (
    ROUNDED_OFF_MS,
    Finding,
    Severity,
    is_plausible,
    some,
)
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant

_TIME_LENGTH = len("20261129124500054")  # an index that is added has a longer time
_NO_INDEX = "give all its writers hoodie.metadata.index.column.stats.enable=false"
_MAKE_ANEW = (
    "when no driver of the table runs, delete the metadata table (CALL delete_metadata_table(table => "
    "'...') in Spark SQL): the next write makes it anew"
)


def overwritten_commits(
    writes: Sequence[ConcurrentOperation], written: Mapping[Instant, CommitMetadata]
) -> Iterator[Finding]:
    """Yield the commits whose rows a write overwrote that began after them.

    A write names the instant whose base file it merged. If another write had completed a newer one of
    the same file group before it was requested, it has not seen that one. Hudi's check compares only
    what completed after the request.

    :param writes: the completed writes of a copy-on-write table, whose files are all base files.
    """
    of_group = defaultdict[FileGroupId, list[ConcurrentOperation]](list)
    for write in filter(is_plausible, writes):
        for group in write.based:
            of_group[group].append(write)
    overwritten = defaultdict[str, set[str]](set)
    for group, changes in of_group.items():
        for later, earlier in _skipped(group, changes, written):
            overwritten[later].add(earlier)
    for later, skipped in sorted(overwritten.items()):
        yield Finding(
            "overwritten_commit",
            Severity.ERROR,
            tuple(sorted((later, *skipped))),
            f"{later} was built on files from before {some(skipped)}, which had completed when it "
            "began: it has overwritten their rows, and no check of conflicts compares the two",
            "write the rows of those that completed first again. If the table is written by several "
            f"releases of Hudi, its metadata table may lack those commits: {_MAKE_ANEW}",
        )


def _skipped(
    group: FileGroupId, changes: list[ConcurrentOperation], written: Mapping[Instant, CommitMetadata]
) -> Iterator[tuple[str, str]]:
    """Yield a file group's writes that skipped another one, with the skipped one."""
    ended_ms = {change.instant.time: change.completed_ms or 0 for change in changes}
    for later in changes:
        base = written[later.instant].bases.get(group, later.instant.time)
        if base not in ended_ms or base == later.instant.time:  # it is archived, or none
            continue
        begun_ms = (later.requested_ms or 0) - ROUNDED_OFF_MS
        for time, at_ms in ended_ms.items():
            if ended_ms[base] < at_ms < begun_ms:
                yield later.instant.time, time


def unlisted_commits(writes: Sequence[Instant], listed: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if the metadata table lacks completed writes.

    Hudi lists a table's files by it.

    :param writes: the completed writes of the active timeline.
    :param listed: the completed times of the metadata table's active timeline.
    """
    of_writes = [time for time in listed if len(time) == _TIME_LENGTH and time[0] != "0"]
    first = min(of_writes, default="~")  # which no time follows
    missing = [write.time for write in writes if write.time > first and write.time not in listed]
    if missing:
        yield Finding(
            "unlisted_commit",
            Severity.ERROR,
            tuple(missing),
            f"the metadata table lacks {some(missing)}: the next writers do not see what these wrote, "
            "and overwrite it. A write that would have added an index beside another write leaves the "
            "metadata table as it is",
            f"{_MAKE_ANEW}; {_NO_INDEX}, or upgrade the table",
        )


def upgraded_metadata_table(version: int, version_of_metadata: int) -> Iterator[Finding]:
    """Yield a finding if the metadata table is newer than its table.

    Writers of the older release cannot read it.

    :param version: of the table.
    """
    if version_of_metadata > version:
        yield Finding(
            "upgraded_metadata_table",
            Severity.WARNING,
            (),
            f"the metadata table has version {version_of_metadata}, the table version {version}: "
            "writers of the release that made the table fail",
            f"{_MAKE_ANEW}; give the newer writers hoodie.write.table.version={version}",
        )
