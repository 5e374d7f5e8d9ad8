"""The report of tables: ``python -m airflow_occ_provider.reading TABLE``.

It needs no Airflow, and reads with the credentials of this process. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from airflow_occ_provider.errors import OccError
from airflow_occ_provider.reading.report import report
from airflow_occ_provider.reading.report_page import render
from airflow_occ_provider.reading.report_text import describe_report, report_lines, span_ms
from airflow_occ_provider.storage.table import HudiTable


def main() -> int:
    """Print the reports of the tables that the command line names."""
    arguments = _arguments()
    try:
        since_ms = round(time.time() * 1000) - span_ms(arguments.since)
        tables = [HudiTable(path, timeout_s=arguments.timeout) for path in arguments.tables]
        described = [describe_report(report(table, since_ms, tell=_tell)) for table in tables]
    except OccError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    if arguments.output == "html":
        print(render(described), end="")
    elif arguments.output == "json":
        print(json.dumps(described, indent=2))
    else:
        for table in described:
            print(*report_lines(table), sep="\n")
    return 0


def _tell(text: str) -> None:
    print(f"{text} ...", file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m airflow_occ_provider.reading", description=__doc__)
    parser.add_argument("tables", nargs="+", help="base paths, absolute or URLs")
    parser.add_argument("--since", default="30d", help="how far back, such as 12h, 30d or 4w")
    parser.add_argument("--output", "-o", choices=("text", "json", "html"), default="text")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one request")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
