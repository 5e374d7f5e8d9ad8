"""Finds what dead writers left in a table, and in its metadata table. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.hudi.writer.procedure import procedure_call
from airflow_occ_provider.hudi.writer.residue import Kind, Residue, Traces
from airflow_occ_provider.storage.snapshot import Snapshot, heartbeats
from airflow_occ_provider.storage.table import HudiTable

METADATA_TABLE = ".hoodie/metadata"
_FOLDERS = {Kind.MARKERS: ".hoodie/.temp", Kind.HEARTBEAT: ".hoodie/.heartbeat"}


def residues(
    table: HudiTable, rule: HeartbeatRule = DEFAULT_RULE, given_up: Collection[str] = ()
) -> tuple[Residue, ...]:
    """Return what no procedure of Hudi's will remove by itself, oldest instant first.

    Markers and heartbeats are listed before the timeline: what is left of an instant that is not
    pending then is not that of a writer that has just begun. What ended less than a tolerance ago
    is none yet, since Hudi removes both after the commit or rollback, and may be about to.

    :param given_up: requested times of instants of which that is known to be over.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    inner = HudiTable(
        f"{table.path}/{METADATA_TABLE}", table.files.file_system, timeout_s=table.files.timeout_s
    )
    own, inner_own = _found(table, rule, given_up), _found(inner, rule, given_up)
    inside = (_in_metadata_table(one) for one in inner_own if one.kind is not Kind.DATA_FILES)
    return tuple(sorted([*own, *inside], key=lambda one: (one.instant, one.path)))


def uncommitted_files(snapshot: Snapshot, time: str) -> tuple[str, ...]:
    """Return the data files of an instant that its markers name and that are there, sorted.

    :param time: requested time of an instant that is not in the active timeline.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    present: dict[str, frozenset[str]] = {}
    found = []
    for marker in snapshot.markers(time):
        if marker.partition not in present:
            present[marker.partition] = snapshot.data_files(marker.partition)
        if marker.data_file in present[marker.partition]:
            found.append(f"{marker.partition}/{marker.data_file}".lstrip("/"))
    return tuple(sorted(found))


def _found(table: HudiTable, rule: HeartbeatRule, given_up: Collection[str]) -> Iterator[Residue]:
    traces, snapshot = _traces(table, rule)
    for kind, instant in traces.orphans():
        if instant not in given_up and _is_young(traces, instant, snapshot):
            continue
        uncommitted = kind is Kind.MARKERS and snapshot.timeline.find(instant) is None
        files = uncommitted_files(snapshot, instant) if uncommitted else ()
        if files:
            yield _data_files(snapshot, traces, instant, files)
        path = f"{_FOLDERS[kind]}/{instant}"
        remedy = _remedy(snapshot, kind, instant, path, first_files=bool(files))
        if traces.beats(instant):
            remedy = f"end its driver first: it lives, and cannot commit any more; then: {remedy}"
        yield Residue(kind, instant, path, traces.proof(instant), remedy)


def _traces(table: HudiTable, rule: HeartbeatRule) -> tuple[Traces, Snapshot]:
    folders = table.files.listing(_FOLDERS[Kind.MARKERS]).names
    ticks = heartbeats(table.files)
    now_ms = round(time.time() * 1000)
    snapshot = table.snapshot(missing_ok=True)
    takers = {victim: rollback for rollback, victims in snapshot.rollbacks() for victim in victims}
    traces = Traces(
        snapshot.timeline,
        takers,
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
    oldest = min((one.time for one in snapshot.timeline.completed_writes()), default="")
    seen = "readers take them for committed" if instant < oldest else "readers do not see them"
    remedy = f"remove them with Hudi's HoodieRepairTool, for instant {instant}"
    if traces.ended_by(instant) is None:  # its commit, or its rollback, may have been archived
        remedy = f"unless airflow hudi timeline --archived shows that it committed: {remedy}"
    return Residue(
        Kind.DATA_FILES,
        instant,
        files[0].rpartition("/")[0],
        f"{traces.proof(instant)}; its markers name {len(files)} data files that are there: "
        f"{', '.join(files)}; {seen}",
        remedy,
    )


def _remedy(snapshot: Snapshot, kind: Kind, instant: str, path: str, *, first_files: bool) -> str:
    if kind is Kind.HEARTBEAT:
        return f"nobody waits for it; hadoop fs -rm {snapshot.path}/{path}"
    if snapshot.path.endswith(f"/{METADATA_TABLE}"):  # in no catalog, and the procedure takes a name
        call = f"hadoop fs -rm -r {snapshot.path}/{path}"
    else:
        call = procedure_call("delete_marker", snapshot.config, instant)
    if first_files:
        return f"only after its data files are removed, since nothing else names them: {call}"
    if snapshot.timeline.find(instant):
        return f"Hudi's archival removes it together with its instant; before: {call}"
    return call


def _in_metadata_table(one: Residue) -> Residue:
    path = f"{METADATA_TABLE}/{one.path}"
    return Residue(one.kind, one.instant, path, f"metadata table: {one.proof}", one.remedy)
