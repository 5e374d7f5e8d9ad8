"""Finds the residue of dead writers in a table and its metadata table, read-only."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.hudi.writer.residue import Kind, Residue, Traces, procedure_call
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

METADATA_TABLE = ".hoodie/metadata"
_FOLDERS = {Kind.MARKERS: ".hoodie/.temp", Kind.HEARTBEAT: ".hoodie/.heartbeat"}


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
    inner = HudiTable(
        f"{table.path}/{METADATA_TABLE}", table.files.file_system, timeout_s=table.files.timeout_s
    )
    if table.files.damaged is not None:
        inner = inner.diagnosed()
    outer = _found(table, rule, given_up)
    inside = (
        replace(
            residue, path=f"{METADATA_TABLE}/{residue.path}", proof=f"metadata table: {residue.proof}"
        )
        for residue in _found(inner, rule, given_up)
        if residue.kind is not Kind.DATA_FILES
    )
    return tuple(sorted([*outer, *inside], key=lambda residue: (residue.instant, residue.path)))


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
