"""``airflow hudi ...``: imported at every ``airflow`` call, so each command loads what it needs."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

if TYPE_CHECKING:
    from airflow_occ_provider.jobs.outcome import Reading

_LOG = Arg(("log",), help="A driver's log, as saved by Spark or Airflow; - for standard input")
_EXIT_CODE = Arg(("--exit-code",), type=int, default=None, help="The driver's exit code, if known")
_OUTPUT = Arg(("-o", "--output"), choices=("table", "json"), default="table", help="Output format")


def get_cli_commands() -> list[GroupCommand]:
    """Return the ``airflow hudi`` commands."""
    return [
        GroupCommand(
            name="hudi",
            help="Look into concurrent writes of Hudi tables",
            subcommands=[
                ActionCommand(
                    name="outcome",
                    help="Tell what a Spark job that wrote a Hudi table came to, from its log",
                    description="Tell from a saved driver's log what the attempt came to, which lines "
                    "decided, and what to do. Whether it committed only the table can tell for sure.",
                    func=outcome,
                    args=(_LOG, _EXIT_CODE, _OUTPUT),
                )
            ],
        )
    ]


def outcome(args: argparse.Namespace) -> None:
    """Print the outcome that a saved log tells."""
    from airflow_occ_provider.jobs.log_lines import unwrap
    from airflow_occ_provider.jobs.outcome import DriverLog

    log = DriverLog()
    try:
        with _open(args.log) as lines:
            for line in filter(None, map(unwrap, lines)):
                log.feed(line)
    except OSError as error:
        raise SystemExit(f"airflow hudi outcome: {args.log}: {error.strerror}") from error
    reading = log.read(args.exit_code)
    print(_as_json(reading) if args.output == "json" else _as_text(reading))


def _open(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return nullcontext(sys.stdin)
    return Path(name).open(encoding="utf-8", errors="replace")


def _as_json(reading: Reading) -> str:
    return json.dumps(
        {
            "outcome": reading.outcome,
            "instant": reading.instant,
            "rival": reading.rival,
            "lines": reading.lines,
            "remedy": reading.remedy,
        },
        indent=2,
    )


def _as_text(reading: Reading) -> str:
    rows = [("outcome", reading.outcome), ("instant", reading.instant or "-")]
    if reading.rival:
        rows.append(("rival", reading.rival))
    rows += [("because" if number == 0 else "", line) for number, line in enumerate(reading.lines)]
    rows.append(("what to do", reading.remedy))
    return "\n".join(f"{name:<11}{value}" for name, value in rows)
