"""``airflow hudi doctor``: what a table's metadata shows of unsafe writers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from airflow_occ_provider.cli.output import Rows, print_described
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import lock_hook_if_any
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable

_NOTHING = "No finding: the table shows no unsafe writer."
_FOUND = 3


@exit_on_error
def doctor(args: argparse.Namespace) -> None:
    """Print the findings, the worst first; exit with 3 if one is worse than a notice."""
    rule = HeartbeatRule(args.heartbeat_interval_ms, args.tolerable_misses)
    table = HudiTableHook(args.table, args.conn_id, timeout_s=args.timeout).get_conn()
    findings = examined(table, rule, args.lock_conn_id)
    described = [finding.to_json() for finding in findings]
    print_described(described, args.output, partial(_print_text, described))
    if any(finding.severity is not Severity.NOTICE for finding in findings):
        raise SystemExit(_FOUND)


def examined(table: HudiTable, rule: HeartbeatRule, lock_conn_id: str | None) -> tuple[Finding, ...]:
    """Return the findings about a table, and about a lock.

    :param lock_conn_id: as given; ``None`` for the default connection, if it exists and answers.
    """
    lock = lock_hook_if_any(lock_conn_id)
    try:
        return examine(table, rule, lock)
    except LockUnreachableError as error:
        if lock_conn_id:
            raise
        print(f"Warning: the lock is not examined: {error}", file=sys.stderr)
        return examine(table, rule)


def _print_text(described: list[dict[str, Any]], show: Callable[[Rows], None]) -> None:
    if described:
        show({key: _cell(value) for key, value in finding.items()} for finding in described)
    else:
        print(_NOTHING)


def _cell(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "\n".join(value[-3:])
