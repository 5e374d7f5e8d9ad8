"""``airflow hudi timeline | writers | conflicts``: a table's metadata."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_occ_provider.cli.output import print_described
from airflow_occ_provider.errors import OccError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.conflict.verdict import Conflict, Verdict
from airflow_occ_provider.storage.description import describe
from airflow_occ_provider.storage.writers import PendingInstant

_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"
_Command = Callable[[argparse.Namespace], None]


def exit_on_error(command: _Command) -> _Command:
    """Wrap a command to exit with our error's message and no traceback."""
    name = command.__name__.replace("_", " ")

    @suppress_logs_and_warning
    @wraps(command)
    def run(args: argparse.Namespace) -> None:
        try:
            with _database_connections():
                command(args)
        except OccError as error:
            raise SystemExit(f"airflow hudi {name}: {error}") from error

    return run


@contextmanager
def _database_connections() -> Iterator[None]:
    """Let Airflow find connections in its database, as ``connections get`` does."""
    before = os.environ.get(_CONTEXT)
    os.environ[_CONTEXT] = before or "server"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CONTEXT]


@exit_on_error
def timeline(args: argparse.Namespace) -> None:
    """Print the instants, oldest first."""
    snapshot = _hook(args).snapshot()
    heartbeats = snapshot.heartbeats()
    archived = snapshot.history() if args.archived else ()
    instants = [*archived, *snapshot.timeline]
    described = [describe(snapshot, one, heartbeats, files=args.files) for one in instants]
    print_described(described, args.output, lambda show: show(map(_timeline_row, described)))


@exit_on_error
def writers(args: argparse.Namespace) -> None:
    """Print the pending writes and table services, with their heartbeats."""
    hook = _hook(args)
    pending = [*hook.pending_writers(), *hook.pending_table_services()]
    described = list(map(_writer, pending))
    print_described(described, args.output, lambda show: show(map(_writer_row, described)))


@exit_on_error
def conflicts(args: argparse.Namespace) -> None:
    """Print the verdict on one pending write, or on each."""
    hook = _hook(args)
    setup = Strategy(args.strategy) if args.strategy else None, _version(args.hudi_version)
    if args.instant:
        judged = {args.instant: hook.conflicts(args.instant, *setup)}
    else:
        judged = {**hook.verdicts(*setup)}
    if None in judged.values():
        raise SystemExit(f"airflow hudi conflicts: {args.table} has no pending write {args.instant}")
    described = [_verdict(time, verdict) for time, verdict in judged.items() if verdict]
    rows = (row for one in described for row in _verdict_rows(one))
    print_described(described, args.output, lambda show: show(rows))


def _hook(args: argparse.Namespace) -> HudiTableHook:
    return HudiTableHook(args.table, args.conn_id, timeout_s=args.timeout)


def _version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise SystemExit(f"--hudi-version: {text!r} is not a version such as 1.2")
    return int(major), int(minor)


def format_time(epoch_ms: int) -> str:
    """Return a moment as text, in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(" ", "seconds")


def _timeline_row(described: dict[str, Any]) -> dict[str, str]:
    row = {key: described[key] or "-" for key in ("time", "action", "state", "completion_time")}
    row["operation"] = described["operation"] or "-"
    if "written" in described:
        for key in ("written", "replaced", "planned", "markers"):
            row[key] = _groups(described[key] or ())
    row["signed by"] = _signer(described["extra"])
    row["archived"] = "yes" if described["archived"] else ""
    return row


_UNMAPPED = "-1"


def _signer(extra: dict[str, str]) -> str:
    dag, task, run = (extra.get(f"_airflow_{key}") for key in ("dag_id", "task_id", "run_id"))
    index = extra.get("_airflow_map_index", _UNMAPPED)
    parts = (dag, task if index == _UNMAPPED else f"{task}[{index}]", run)
    return " ".join(filter(None, parts)) or "-"


def _groups(groups: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"{partition}/{file_id}".lstrip("/") for partition, file_id in groups) or "-"


def _writer(pending: PendingInstant) -> dict[str, Any]:
    operation, heartbeat = pending.operation, pending.heartbeat
    return {
        "time": operation.instant.time,
        "action": operation.instant.action,
        "state": operation.instant.state.value,
        "operation": operation.operation_type,
        "heartbeat": heartbeat.liveness.value,
        "last_tick_ms": heartbeat.last_ms,
        "margin_ms": heartbeat.margin_ms,
        "partitions": sorted({p for p, _ in operation.file_groups} | operation.adds_to),
        "file_groups": len(operation.file_groups),
    }


def _writer_row(described: dict[str, Any]) -> dict[str, str]:
    margin = described["margin_ms"]
    left = "-" if margin is None else f"{margin / 1000:+.0f} s"
    row = {key: str(described[key]) for key in ("time", "action", "state", "operation", "heartbeat")}
    partitions = ", ".join(described["partitions"]) or "-"
    return {
        **row,
        "expires in": left,
        "file groups": str(described["file_groups"]),
        "partitions": partitions,
    }


def _verdict(time: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "time": time,
        "verdict": verdict.certainty.value,
        "rolled_back_by": verdict.rolled_back_by.time if verdict.rolled_back_by else None,
        "conflicts": [_conflict(one) for one in verdict.conflicts],
    }


def _conflict(conflict: Conflict) -> dict[str, Any]:
    rival = conflict.rival
    return {
        "rival": rival.instant.time,
        "action": rival.instant.action,
        "state": rival.instant.state.value,
        "operation": rival.operation_type,
        "certainty": conflict.certainty.value,
        "file_groups": sorted(map(list, conflict.file_groups)),
        "reason": conflict.reason,
    }


def _verdict_rows(described: dict[str, Any]) -> list[dict[str, str]]:
    rows = []
    if described["rolled_back_by"] or not described["conflicts"]:
        reason = f"rolled back by {described['rolled_back_by']}" if described["rolled_back_by"] else "-"
        rows.append(_row(described["time"], described["verdict"], "-", reason, "-"))
    return rows + [
        _row(
            described["time"],
            one["certainty"],
            f"{one['rival']} {one['operation']} {one['state']}",
            one["reason"],
            _groups(one["file_groups"]),
        )
        for one in described["conflicts"]
    ]


def _row(time: str, verdict: str, rival: str, reason: str, groups: str) -> dict[str, str]:
    return {
        "write": time,
        "conflict": verdict,
        "rival": rival,
        "reason": reason,
        "shared file groups": groups,
    }
