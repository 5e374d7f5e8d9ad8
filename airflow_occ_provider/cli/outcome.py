"""``airflow hudi outcome``: the outcome of an attempt, from a saved log."""

from __future__ import annotations

import argparse
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from airflow_occ_provider.attempts.log.saved_log import SavedLog
from airflow_occ_provider.attempts.outcome import Reading
from airflow_occ_provider.cli.output import print_described
from airflow_occ_provider.submitters.yarn.aggregated_logs import AggregatedLogError, is_aggregated
from airflow_occ_provider.submitters.yarn.saved_logs import (
    DriverLine,
    SavedLogError,
    aggregated_lines,
    printed_lines,
)

_HEAD = 4096
_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 20  # characters; a longer one is read in parts
_BINARY = (
    "it is a binary file, and no aggregated log in Hadoop's format TFile (an IndexedFile?). Save the "
    "output of `yarn logs -applicationId ID` instead"
)


def outcome(args: argparse.Namespace) -> None:
    """Print the outcome that a saved log shows."""
    try:
        with _lines(args.log) as lines:
            reading = _read(lines, args.exit_code)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise SystemExit(f"airflow hudi outcome: {args.log}: {reason}") from error
    except (AggregatedLogError, SavedLogError) as error:
        raise SystemExit(f"airflow hudi outcome: {args.log}: {error}") from error
    print_described(_described(reading), args.output, lambda _: print(_as_text(reading)))


def _read(lines: Iterator[DriverLine | str], exit_code: int | None) -> Reading:
    """Read a log; of an application that YARN has run again, that of its last attempt."""
    log, last = SavedLog(), 0
    for line in lines:
        attempt, text = line if isinstance(line, DriverLine) else (0, line)
        if attempt > last:
            log, last = SavedLog(), attempt
        if attempt == last:
            log.feed(text)
    return log.read(exit_code)


@contextmanager
def _lines(name: str) -> Iterator[Iterator[DriverLine | str]]:
    if name == "-":
        yield printed_lines(sys.stdin)
        return
    with _opened(Path(name)) as file:
        if is_aggregated(file):
            yield aggregated_lines(file)
            return
        file.seek(0)
        if b"\0" in file.read(_HEAD):
            raise SavedLogError(_BINARY)
        file.seek(0)
        text = io.TextIOWrapper(file, "utf-8", "replace")
        yield printed_lines(iter(partial(text.readline, _LONGEST_LINE), ""))


def _opened(path: Path) -> BinaryIO:
    """Open a file, and one that gzip has made as what it had been."""
    with path.open("rb") as file:
        is_compressed = file.read(len(_GZIP)) == _GZIP
    return cast("BinaryIO", gzip.open(path)) if is_compressed else path.open("rb")


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
