"""``airflow hudi report``: what concurrent writing has cost tables."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from airflow_occ_provider.cli.doctor import examined
from airflow_occ_provider.cli.output import Rows, print_described
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.errors import OccError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.reading.report import report as report_of
from airflow_occ_provider.reading.report_text import describe_report, loss_row, report_lines, span_ms


@exit_on_error
def report(args: argparse.Namespace) -> None:
    """Print the reports of tables, or one page of them."""
    rule = HeartbeatRule(args.heartbeat_interval_ms, args.tolerable_misses)
    since_ms = round(time.time() * 1000) - span_ms(args.since)
    described = list[dict[str, Any]]()
    refused = list[str]()
    for path in args.tables:
        try:
            table = HudiTableHook(path, args.conn_id, timeout_s=args.timeout).get_conn()
            _tell(f"examining {path}")
            findings = examined(table, rule, args.lock_conn_id)
            described.append(describe_report(report_of(table, since_ms, findings, rule, _tell)))
        except OccError as error:
            refused.append(f"airflow hudi report: {error}")
    if described:
        _print(described, args.output)
    if refused:
        raise SystemExit("\n".join(refused))


def _print(described: list[dict[str, Any]], output: str) -> None:
    if output == "html":
        from airflow_occ_provider.reading.report_page import render

        print(render(described), end="")
        return

    def print_text(show: Callable[[Rows], None]) -> None:
        for table_report in described:
            print(*report_lines(table_report), sep="\n")
            if table_report["losses"]:
                show(map(loss_row, table_report["losses"]))

    print_described(described, output, print_text)


def _tell(text: str) -> None:
    print(f"{text} ...", file=sys.stderr)
