"""From what was read to what the pages show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.outcome import MEANINGS, Outcome
from airflow_occ_provider.attempts.record import AttemptRecord, TaskRecord
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.reading.table_state import TableState
from airflow_occ_provider.ui.shared_read import SharedValue
from airflow_occ_provider.ui.table_readers import REQUEST_TIMEOUT_S, SHOWN_S
from airflow_occ_provider.ui.table_reads import TableReading
from airflow_occ_provider.ui.view import AttemptRow, KnownTable, Reach

_OPEN = {"", *(outcome for outcome, meaning in MEANINGS.items() if meaning.may_have_committed)}


def known_table(reading: TableReading, signed: Mapping[str, Signature] | None = None) -> KnownTable:
    """Return a table as the pages show it.

    :param signed: the tasks of writes that have no signature in the table, by requested time.
    """
    state = reading.state
    if state:
        state = state.signed({**state.announced, **(signed or {})})
    return KnownTable(
        reading.source.key,
        reading.source.path,
        state,
        _reach(reading.storage),
        _reach(reading.queue),
        reading.findings.value if reading.findings else None,
        reading.findings.problem if reading.findings else "",
    )


def attempts_of(record: TaskRecord, readings: Mapping[str, TableReading]) -> tuple[AttemptRow, ...]:
    """Return the attempts of a task run, with what their tables show of them.

    :param readings: of the tables that are known, by the path that the attempts name.
    """
    storages = {path: reading.storage for path, reading in readings.items()}
    return tuple(_attempt(attempt, storages.get(attempt.table)) for attempt in record.attempts)


def _attempt(record: AttemptRecord, storage: SharedValue[TableState] | None) -> AttemptRow:
    state = storage.value if storage else None
    if storage is None or state is None:
        return AttemptRow(record, committed=_recorded(record))
    signed = (record.identity, record.try_number)
    commits = [
        bar.instant
        for bar in state.bars
        if bar.fate is Fate.COMMITTED
        and bar.writer
        and (bar.writer.identity, bar.writer.try_number) == signed
    ]
    instants = {time: _fate(time, state) for time in record.instants}
    if commits:
        return AttemptRow(record, instants, commits[-1], committed=True)
    is_new = not (storage.problem or storage.is_late)
    is_shown = is_new and record.started_ms >= state.at_ms - SHOWN_S * 1000
    recorded = _recorded(record)
    return AttemptRow(record, instants, None, False if recorded is None and is_shown else recorded)


def _recorded(record: AttemptRecord) -> bool | None:
    if record.outcome in _OPEN:
        return None
    return record.outcome == Outcome.COMMITTED


def _fate(instant: str, state: TableState) -> str:
    for edge in state.edges:
        if (edge.kind, edge.target) == ("rollback", instant):
            return f"rolled back by {edge.source}"
    shown = next((bar for bar in state.bars if bar.instant == instant), None)
    return shown.fate.value if shown else "not in the last 24 hours"


def _reach(shared: SharedValue[Any] | None) -> Reach:
    if shared is None:
        return Reach()
    answers = None if shared.age_s is None else True
    is_slow = shared.value is None or (shared.running_s or 0) >= REQUEST_TIMEOUT_S
    return Reach(
        False if shared.problem else answers,
        _ms_before(shared.age_s),
        shared.problem,
        _ms_before(shared.running_s) if is_slow else None,
    )


def _ms_before(seconds: float | None) -> int | None:
    return None if seconds is None else round((time.time() - seconds) * 1000)
