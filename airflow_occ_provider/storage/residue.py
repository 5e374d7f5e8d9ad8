"""The residue of dead writers, and data files that no commit names; read-only."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from posixpath import dirname

from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.fate import Fate, Kind, Residue, Traces, procedure_call
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import METADATA_TABLE, HudiTable

_FOLDERS = {Kind.MARKERS: ".hoodie/.temp", Kind.HEARTBEAT: ".hoodie/.heartbeat"}
# Base files only: the name of a log file may have the time of an older base file in it.
_BASE_FILE = re.compile(r"[^._][^_]*_\d+-\d+-\d+_(\d{14,17})\.(?:parquet|orc|hfile)")


def residues(
    table: HudiTable, rule: HeartbeatRule = DEFAULT_RULE, given_up: Collection[str] = ()
) -> tuple[Residue, ...]:
    """Return what Hudi does not remove by itself, oldest instant first.

    Markers and heartbeats are listed before the timeline, so a writer that has just begun is never
    mistaken for a dead one. An instant that ended less than a tolerance ago is skipped: Hudi removes
    markers and heartbeat after the commit or rollback, and may still do so.

    :param given_up: requested times of ended instants for which Hudi will do so no more.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    outer = _found(table, rule, given_up)
    inside = (
        replace(
            residue, path=f"{METADATA_TABLE}/{residue.path}", proof=f"metadata table: {residue.proof}"
        )
        for residue in _of_metadata_table(table, rule, given_up)
        if residue.kind is not Kind.DATA_FILES
    )
    return tuple(sorted([*outer, *inside], key=lambda residue: (residue.instant, residue.path)))


def _of_metadata_table(
    table: HudiTable, rule: HeartbeatRule, given_up: Collection[str]
) -> list[Residue]:
    try:
        return list(_found(table.metadata_table(), rule, given_up))
    except TableUnreadableError:
        if table.files.damaged is None:
            raise
        return []  # the rest of a damaged table is examined


def uncommitted_files(snapshot: Snapshot, time: str) -> tuple[str, ...]:
    """Return the existing data files that the markers of an instant name, sorted.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    present: dict[str, frozenset[str]] = {}
    files = []
    for marker in snapshot.markers(time):
        if marker.partition not in present:
            present[marker.partition] = snapshot.data_files(marker.partition)
        if marker.data_file in present[marker.partition]:
            files.append(f"{marker.partition}/{marker.data_file}".lstrip("/"))
    return tuple(sorted(files))


def _found(table: HudiTable, rule: HeartbeatRule, given_up: Collection[str]) -> Iterator[Residue]:
    traces, snapshot = _traces(table, rule)
    for kind, instant in traces.orphans():
        if instant not in given_up and _is_young(traces, instant, snapshot):
            continue
        is_unlisted = kind is Kind.MARKERS and snapshot.timeline.find(instant) is None
        uncommitted = is_unlisted and snapshot.ended_as(instant) is not Fate.COMMITTED
        files = uncommitted_files(snapshot, instant) if uncommitted else ()
        if files:
            yield _data_files(snapshot, traces, instant, files)
        path = f"{_FOLDERS[kind]}/{instant}"
        remedy = _remedy(snapshot, kind, instant, path, first_files=bool(files))
        if traces.is_alive(instant):
            remedy = f"end its driver first: it is alive and can no longer commit; then: {remedy}"
        yield Residue(kind, instant, path, traces.proof(instant), remedy)


def _traces(table: HudiTable, rule: HeartbeatRule) -> tuple[Traces, Snapshot]:
    folders = table.files.listing(_FOLDERS[Kind.MARKERS]).names
    ticks = table.files.heartbeats()
    now_ms = round(time.time() * 1000)
    snapshot = table.snapshot(missing_ok=True)
    rollbacks = {time: rollback for rollback, times in snapshot.rollbacks() for time in times}
    traces = Traces(
        snapshot.timeline,
        rollbacks,
        frozenset(filter(str.isdigit, folders)),
        ticks,
        now_ms,
        rule,
    )
    return traces, snapshot


def _is_young(traces: Traces, instant: str, snapshot: Snapshot) -> bool:
    ended = traces.ended_by(instant)
    if ended is None:
        return False
    seen_ms = traces.ticks.get(ended.time, 0), snapshot.written_ms(ended.file_name) or 0
    return traces.rule.judge(max(seen_ms), traces.now_ms).live


def _data_files(snapshot: Snapshot, traces: Traces, instant: str, files: tuple[str, ...]) -> Residue:
    is_visible = instant < snapshot.timeline.unbroken_since()
    visibility = "readers treat them as committed" if is_visible else "readers do not see them"
    remedy = f"remove them with Hudi's HoodieRepairTool, for instant {instant}"
    if traces.ended_by(instant) is None:  # its commit or rollback may be archived
        remedy = f"unless airflow hudi timeline --archived shows that it committed: {remedy}"
    return Residue(
        Kind.DATA_FILES,
        instant,
        files[0].rpartition("/")[0],
        f"{traces.proof(instant)}; its markers name {len(files)} existing data files: "
        f"{', '.join(files)}; {visibility}",
        remedy,
    )


def _remedy(snapshot: Snapshot, kind: Kind, instant: str, path: str, *, first_files: bool) -> str:
    if kind is Kind.HEARTBEAT:
        return f"no process waits for it; hadoop fs -rm {snapshot.path}/{path}"
    if snapshot.path.endswith(f"/{METADATA_TABLE}"):  # not in a catalog, and the procedure needs a name
        call = f"hadoop fs -rm -r {snapshot.path}/{path}"
    else:
        call = procedure_call("delete_marker", snapshot.config, instant)
    if first_files:
        return f"only after its data files are removed, since nothing else names them: {call}"
    if snapshot.timeline.find(instant):
        return f"Hudi's archival removes it together with its instant; to remove it now: {call}"
    return call


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
    rolled_back = {requested for _, times in later.rollbacks() for requested in times}
    first = min((write.time for write in later.timeline.completed_writes()), default="")
    unknown = [
        requested
        for requested in by_time
        if not later.timeline.find(requested) and requested not in rolled_back
    ]
    past = _archived_times(later, [requested for requested in unknown if requested < first])
    for requested, paths in sorted(by_time.items()):
        if requested in named:
            loose = [path for path in paths if path not in named[requested]]
        elif requested in unknown and requested not in past:
            loose = paths
        else:
            continue
        if loose:
            yield UnnamedFiles(requested, tuple(sorted(loose)), requested in named or requested < first)


def _archived_times(snapshot: Snapshot, times: Iterable[str]) -> frozenset[str]:
    """Return those of some times that the history has, or is too short to have."""
    wanted = frozenset(times)
    if not wanted or not snapshot.has_history():
        return frozenset()
    history = snapshot.history()
    oldest = min((instant.time for instant in history), default="")
    return frozenset(instant.time for instant in history if instant.is_write) | {
        requested for requested in wanted if not oldest or requested < oldest
    }
