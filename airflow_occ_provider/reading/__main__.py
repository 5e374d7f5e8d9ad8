"""The report of tables: ``python -m airflow_occ_provider.reading TABLE``.

It needs no Airflow, and reads with the credentials of this process. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from airflow_occ_provider.errors import OccError
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_TOLERABLE_MISSES,
    HeartbeatRule,
)
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.reading.report import report
from airflow_occ_provider.reading.report_text import describe_report, report_lines, span_ms
from airflow_occ_provider.storage.table import HudiTable


def main() -> int:
    """Print the reports of the tables that the command line names."""
    arguments, failed = _arguments(), False
    rule = HeartbeatRule(arguments.heartbeat_interval_ms, arguments.tolerable_misses)
    described = list[dict[str, Any]]()
    for path in arguments.tables:
        try:
            since_ms = round(time.time() * 1000) - span_ms(arguments.since)
            table = HudiTable(path, timeout_s=arguments.timeout)
            findings = examine(table, rule)
            described.append(describe_report(report(table, since_ms, findings, rule, _tell)))
        except OccError as error:
            failed = True
            print(error, file=sys.stderr)
    if arguments.output == "html" and described:
        from airflow_occ_provider.reading.report_page import render

        print(render(described), end="")
    elif arguments.output == "json":
        print(json.dumps(described, indent=2))
    else:
        for table_report in described:
            print(*report_lines(table_report), sep="\n")
    return 1 if failed else 0


def _tell(text: str) -> None:
    print(f"{text} ...", file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m airflow_occ_provider.reading", description=__doc__)
    parser.add_argument("tables", nargs="+", help="base paths, absolute or URLs")
    parser.add_argument("--since", default="30d", help="how far back, such as 12h, 30d or 4w")
    parser.add_argument("--output", "-o", choices=("text", "json", "html"), default="text")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one request")
    parser.add_argument("--heartbeat-interval-ms", type=int, default=DEFAULT_INTERVAL_MS)
    parser.add_argument("--tolerable-misses", type=int, default=DEFAULT_TOLERABLE_MISSES)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
