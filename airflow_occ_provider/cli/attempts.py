"""``airflow hudi attempts``: the attempts of a task run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.commit import find_commit
from airflow_occ_provider.attempts.record import (
    NOTHING_BEFORE,
    AttemptRecord,
    TableBefore,
    TaskRecord,
    Waiting,
)
from airflow_occ_provider.cli.output import Rows, print_described
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.spelling import spell_time
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.task.database import task_record


@exit_on_error
def attempts(args: argparse.Namespace) -> None:
    """Print the attempts, oldest first."""
    record = _record(args)
    try:
        tables = {
            path: open_table(path, args.conn_id, timeout_s=args.timeout).snapshot(missing_ok=True)
            for path in {attempt.table for attempt in record.attempts}
        }
        unreadable = ""
    except TableUnreadableError as error:
        tables, unreadable = {}, error.message
    described = [
        _attempt(attempt, record, tables.get(attempt.table), unreadable) for attempt in record.attempts
    ]
    all_values = {**_run(record), "attempts": described}
    print_described(all_values, args.output, partial(_print_text, record.waiting, described))


def _print_text(
    waiting: Waiting | None, described: list[dict[str, Any]], show: Callable[[Rows], None]
) -> None:
    show(map(_row, described))
    if waiting:
        print(f"waiting since {spell_time(waiting.since_ms)}: {waiting.reason}")


def _record(args: argparse.Namespace) -> TaskRecord:
    try:
        record = task_record(args.dag_id, args.run_id, args.task_id, args.map_index)
    except ValueError as error:
        raise SystemExit(
            f"airflow hudi attempts: the record cannot be read ({error}); the workers may use another "
            "state store backend or another release of this provider"
        ) from error
    if record is None:
        raise SystemExit(
            f"airflow hudi attempts: task {args.task_id} of run {args.run_id} of DAG {args.dag_id} has "
            "no record: no HudiWriteOperator with this task id and map index ran there"
        )
    return record


def _run(record: TaskRecord) -> dict[str, Any]:
    return {
        "identity": record.identity,
        "succeeded": record.succeeded,
        "waiting": asdict(record.waiting) if record.waiting else None,
    }


def _attempt(
    attempt: AttemptRecord, record: TaskRecord, snapshot: Snapshot | None, unreadable: str
) -> dict[str, Any]:
    described = attempt.to_json()
    del described["max_tries"]
    described["instants"] = {time: _state(time, snapshot) for time in attempt.instants}
    described["commit"] = None
    described["table_unreadable"] = unreadable or None
    if snapshot:
        before = record.since if attempt.identity == record.identity else None
        described["commit"] = _commit(snapshot, attempt, before or NOTHING_BEFORE)
    return described


def _commit(snapshot: Snapshot, attempt: AttemptRecord, before: TableBefore) -> str | None:
    """Return the instant that this attempt, not another one, committed."""
    commit = find_commit(snapshot, attempt.identity, before, attempt.instants)
    if commit is None:
        return None
    signed_by = commit.metadata.extra.get("_airflow_try_number")
    return commit.instant.time if signed_by == str(attempt.try_number) else None


def _state(time: str, snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "unknown"
    rollback = snapshot.rollback_of(time)
    if rollback:
        return f"rolled back by {rollback.time} ({rollback.state.value})"
    instant = snapshot.timeline.find(time)
    return f"{instant.action} {instant.state.value}" if instant else "not in the active timeline"


def _driver(handle: dict[str, Any]) -> str:
    return f"{handle['pid']} on {handle['host']}" if "pid" in handle else str(handle["name"])


def _row(described: dict[str, Any]) -> dict[str, str]:
    driver = described["driver"]
    instants = [f"{time}: {state}" for time, state in described["instants"].items()]
    return {
        "try": str(described["try_number"]),
        "started": spell_time(described["started_ms"]),
        "driver": _driver(driver) if driver else "-",
        "end": described["end"] or "not observed",
        "outcome": described["outcome"] or "-",
        "instants": "\n".join(instants) or "-",
        "committed": described["commit"] or described["table_unreadable"] or "-",
        "settled": "yes" if described["settled"] else "no",
    }
