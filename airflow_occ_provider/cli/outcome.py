"""``airflow hudi outcome``: the outcome of an attempt, from a saved log."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TextIO

from airflow_occ_provider.attempts.log.saved_log import SavedLog
from airflow_occ_provider.attempts.outcome import Reading


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
