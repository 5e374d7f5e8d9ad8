"""``airflow hudi timeline | writers | conflicts``: a table's metadata."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.cli.output import Rows, format_groups, print_described, task_text
from airflow_occ_provider.cli.prospects import describe_prospect, instants_of, prospect_rows, summary
from airflow_occ_provider.cli.signers import signers
from airflow_occ_provider.errors import MetadataCorruptError, OccError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.doctor.writers import PendingAction
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import Liveness
from airflow_occ_provider.reading.described import describe_instant, describe_task
from airflow_occ_provider.spelling import spell_expiry
from airflow_occ_provider.storage.conflicts import Setup, prospects_of
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import (
    PendingInstant,
    pending_actions,
    pending_table_services,
    pending_writers,
)

_SHOWN = 5
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
    table = _table(args)
    snapshot = table.snapshot()
    heartbeats, archived = snapshot.heartbeats(), list[Instant]()
    if args.archived:
        try:
            archived = list(snapshot.history())
        except MetadataCorruptError as error:
            print(f"Warning: the archived instants are left out: {error}", file=sys.stderr)
    instants = [*archived, *snapshot.timeline]
    described = [_instant(snapshot, instant, heartbeats, files=args.files) for instant in instants]
    print_described(described, args.output, lambda show: show(map(_timeline_row, described)))
    _warn_of_damage(table)


@exit_on_error
def writers(args: argparse.Namespace) -> None:
    """Print what is pending in the table, with the heartbeats of its processes."""
    table = _table(args)
    snapshot = table.snapshot()
    pending = [*pending_writers(table, snapshot), *pending_table_services(snapshot)]
    shown = [*map(_writer, pending), *map(_action, pending_actions(snapshot))]
    tasks = signers(args, snapshot, (write["time"] for write in shown))
    described = [write | {"task": describe_task(tasks.get(write["time"]))} for write in shown]
    print_described(described, args.output, lambda show: show(map(_writer_row, described)))
    _warn_of_damage(table)


@exit_on_error
def conflicts(args: argparse.Namespace) -> None:
    """Print the verdict on one pending write, or on each."""
    table = _table(args)
    strategy = Strategy(args.strategy) if args.strategy else None
    setup = Setup(strategy, _version(args.hudi_version))
    snapshot = table.snapshot()
    prospects = prospects_of(table, snapshot, setup, only=args.instant)
    if args.instant and not prospects:
        raise SystemExit(f"airflow hudi conflicts: {args.table} has no pending write {args.instant}")
    tasks = signers(args, snapshot, instants_of(prospects))
    described = [describe_prospect(prospect, len(prospects), tasks) for prospect in prospects]

    def print_table(show: Callable[[Rows], None]) -> None:
        print(summary(prospects))
        show(row for prospect in described for row in prospect_rows(prospect))

    print_described(described, args.output, print_table)
    _warn_of_damage(table)


def _table(args: argparse.Namespace) -> HudiTable:
    """Return a reader of the table to which a damaged file is no error."""
    return HudiTableHook(args.table, args.conn_id, timeout_s=args.timeout).get_conn().diagnosed()


def _warn_of_damage(table: HudiTable) -> None:
    for name, fault in sorted((table.files.damaged or {}).items()):
        print(f"Warning: {name} {fault}; airflow hudi doctor has the remedy", file=sys.stderr)


def _version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise SystemExit(f"--hudi-version: {text!r} is not a version such as 1.2")
    return int(major), int(minor)


def _instant(
    snapshot: Snapshot, instant: Instant, heartbeats: Mapping[str, int], *, files: bool
) -> dict[str, Any]:
    described = describe_instant(snapshot, instant, heartbeats, files=files)
    return described | {"task": describe_task(Signature.from_extra(described["extra"]))}


def _timeline_row(described: dict[str, Any]) -> dict[str, str]:
    row = {key: described[key] or "-" for key in ("time", "action", "state", "completion_time")}
    row["operation"] = described["operation"] or "-"
    if "written" in described:
        for key in ("written", "replaced", "planned", "markers"):
            row[key] = format_groups(described[key] or ())
    row["task"] = task_text(described)
    row["archived"] = "yes" if described["archived"] else ""
    if described["damage"]:
        row["operation"] = described["damage"]
    return row


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


def _action(pending: PendingAction) -> dict[str, Any]:
    instant = pending.instant
    return {
        "time": instant.time,
        "action": instant.action,
        "state": instant.state.value,
        "operation": instant.action.upper(),
        "heartbeat": (Liveness.ALIVE if pending.live else Liveness.NONE).value,
        "last_tick_ms": None,
        "margin_ms": None,
        "partitions": [],
        "file_groups": 0,
    }


def _writer_row(described: dict[str, Any]) -> dict[str, str]:
    margin, partitions = described["margin_ms"], described["partitions"]
    more = [f"and {len(partitions) - _SHOWN} more"] if len(partitions) > _SHOWN else []
    row = {key: str(described[key]) for key in ("time", "action", "state", "operation")}
    return {
        **row,
        "task": task_text(described),
        "heartbeat": described["heartbeat"],
        "expires": "-" if margin is None else spell_expiry(margin),
        "file groups": str(described["file_groups"]),
        "partitions": "\n".join([*partitions[:_SHOWN], *more]) or "-",
    }
