"""``airflow hudi outcome``: the outcome of an attempt, from a saved log."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from airflow_occ_provider.attempts.log.saved_log import SavedLog
from airflow_occ_provider.attempts.outcome import Reading
from airflow_occ_provider.cli.output import print_described


def outcome(args: argparse.Namespace) -> None:
    """Print the outcome that a saved log shows."""
    log = SavedLog()
    try:
        with _open(args.log) as lines:
            for line in lines:
                log.feed(line)
    except OSError as error:
        raise SystemExit(f"airflow hudi outcome: {args.log}: {error.strerror}") from error
    reading = log.read(args.exit_code)
    print_described(_described(reading), args.output, lambda _: print(_as_text(reading)))


def _open(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return nullcontext(sys.stdin)
    return Path(name).open(encoding="utf-8", errors="replace")


def _described(reading: Reading) -> dict[str, Any]:
    return {
        "outcome": reading.outcome,
        "instant": reading.instant,
        "rival": reading.rival,
        "lines": reading.lines,
        "remedy": reading.remedy,
    }


def _as_text(reading: Reading) -> str:
    rows = [("outcome", reading.outcome), ("instant", reading.instant or "-")]
    if reading.rival:
        rows.append(("rival", reading.rival))
    rows += [("because" if number == 0 else "", line) for number, line in enumerate(reading.lines)]
    rows.append(("what to do", reading.remedy))
    return "\n".join(f"{name:<11}{value}" for name, value in rows)
