"""What shows that a write has not seen an earlier one.

Its base files do, and what the metadata table lacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.finding import (
    ROUNDED_OFF_MS,
    Finding,
    Severity,
    is_original,
    some,
)
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.format.timeline import Timeline

_TIME_LENGTH = len("20261129124500054")  # an index that is added has a longer time
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
    for write in filter(is_original, writes):
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


def unlisted_commits(writes: Sequence[Instant], metadata: Timeline) -> Iterator[Finding]:
    """Yield a finding if the metadata table lacks completed writes.

    Hudi lists a table's files by it.

    :param writes: the completed writes of the active timeline.
    :param metadata: the active timeline of the metadata table.
    """
    listed = {
        instant.time
        for instant in metadata
        if instant.completed and instant.action == "deltacommit" and _is_of_write(instant.time)
    }
    first = min(listed, default="~")  # which no time follows
    missing = [write.time for write in writes if write.time > first and write.time not in listed]
    if missing:
        yield Finding(
            "unlisted_commit",
            Severity.ERROR,
            tuple(missing),
            f"the metadata table lacks {some(missing)}: the next writers do not see what these wrote, "
            "and overwrite it. Below table version 8, a write that would have changed an index beside "
            "another write leaves the metadata table as it is",
            f"{_MAKE_ANEW}; give each writer the options of airflow hudi conf",
        )


def _is_of_write(time: str) -> bool:
    """Whether a time of the metadata table is that of a write, and not of an index that is added."""
    return len(time) == _TIME_LENGTH and time[0] != "0"


def metadata_table_format(config: TableConfig, metadata: TableConfig | None) -> Iterator[Finding]:
    """Yield a finding if a table's metadata table is missing, damaged or newer.

    :param metadata: the configuration of the metadata table; ``None`` if it cannot be read.
    """
    if metadata is None or not metadata.exists:
        what = "cannot be read" if metadata is None else "does not exist"
        yield Finding(
            "damaged_metadata_table",
            Severity.ERROR,
            (),
            f"hoodie.properties names a metadata table, which {what}: Hudi's readers and writers fail",
            _MAKE_ANEW,
        )
    elif metadata.version > config.version:
        yield Finding(
            "upgraded_metadata_table",
            Severity.WARNING,
            (),
            f"the metadata table has version {metadata.version}, the table version {config.version}: "
            "writers of the release that made the table fail",
            f"{_MAKE_ANEW}; give the newer writers hoodie.write.table.version={config.version}",
        )
