"""``airflow hudi outcome``: the outcome of an attempt, from a saved log."""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from airflow_occ_provider.attempts.outcome import LogReading
from airflow_occ_provider.cli.output import print_described
from airflow_occ_provider.reading.saved_log import read_saved_log

_HEAD = 4096
_COMPRESSED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"\x04\x22\x4d\x18": "lz4"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # as PowerShell writes what it redirects
_NO_TEXT = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_LONGEST_LINE = 1 << 20  # characters; a longer one is read in parts
_BINARY = (
    "it is a binary file. If YARN has aggregated it, save the output of "
    "`yarn logs -applicationId ID` instead"
)


class SavedLogError(ValueError):
    """A file is no text, or is packed."""


def outcome(args: argparse.Namespace) -> None:
    """Print the outcome that a saved log shows."""
    try:
        with _lines(args.log) as lines:
            reading = read_saved_log(lines, args.exit_code)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SystemExit(f"airflow hudi outcome: {args.log}: {reason}") from error
    except SavedLogError as error:
        raise SystemExit(f"airflow hudi outcome: {args.log}: {error}") from error
    print_described(_described(reading), args.output, lambda _: print(_as_text(reading)))


@contextmanager
def _lines(name: str) -> Iterator[Iterable[str]]:
    if name == "-":
        yield sys.stdin
        return
    with _opened(Path(name)) as file:
        encoding = _encoding(file.read(_HEAD))
        file.seek(0)
        text = io.TextIOWrapper(file, encoding, "replace")
        lines = iter(partial(text.readline, _LONGEST_LINE), "")
        yield (line.replace("\0", "") for line in lines)


def _opened(path: Path) -> BinaryIO:
    """Open a file, and a compressed one as what it had been."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise SavedLogError(f"it is packed with {name}. Unpack it first")
    for magic, opens in _COMPRESSED.items():
        if head.startswith(magic):
            return cast("BinaryIO", opens(path))
    return path.open("rb")


def _encoding(head: bytes) -> str:
    """Return the encoding of a text; one that was cut while it was written may have zero bytes.

    :raises SavedLogError: if it is no text.
    """
    if head.startswith(_UTF_16):
        return "utf-16"
    if b"\0" in head and _NO_TEXT.search(head):
        raise SavedLogError(_BINARY)
    return "utf-8"


def _described(reading: LogReading) -> dict[str, Any]:
    return {
        "outcome": reading.outcome,
        "instant": reading.instant,
        "rival": reading.rival,
        "lines": reading.lines,
        "remedy": reading.remedy,
    }


def _as_text(reading: LogReading) -> str:
    rows = [("outcome", reading.outcome), ("instant", reading.instant or "-")]
    if reading.rival:
        rows.append(("rival", reading.rival))
    rows += [("because" if number == 0 else "", line) for number, line in enumerate(reading.lines)]
    rows.append(("what to do", reading.remedy))
    return "\n".join(f"{name:<11}{value}" for name, value in rows)
