"""A writer's end, read from the exceptions that it threw and the table's completed instants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.observation import Fate, Result
from tests.differential.pairs import PLANS, SERVICES, Write
from tests.differential.writes import signature

_COMPLETED = re.compile(r"(\d{17})(?:_\d{17})?\.(?:commit|deltacommit|replacecommit)")
_RESULTS: dict[str, Result] = {
    "HoodieWriteConflictException": "conflict",
    "HoodieEarlyConflictDetectionException": "early",
    "HoodieClusteringUpdateException": "rejected",
}


def read_fate(
    name: str, write: Write, error: BaseException | None, instants: tuple[str, ...], table: Path
) -> Fate:
    """Return a writer's fate.

    :param name: the writer's name, with which its commit is signed.
    :param write: its work.
    :param error: its error, if it failed.
    :param instants: its instants as ``time.action``.
    :param table: base path.
    """
    if error is None:
        result, evidence = _success(name, write, instants, table)
        return Fate(result, evidence, instants)
    text = "\n".join(causes(error))
    found = [result for exception, result in _RESULTS.items() if exception in text]
    return Fate(found[0] if found else "error", text, instants)


def causes(error: BaseException) -> Iterator[str]:
    """Yield the first line of an error and of each of its causes, Java's own if it has them."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        yield f"{type(error).__name__}: {error}"
        if error.__cause__:
            yield from causes(error.__cause__)
    while cause is not None:
        yield str(cause.toString()).splitlines()[0][:1000]
        cause = cause.getCause()


def _success(name: str, write: Write, instants: tuple[str, ...], table: Path) -> tuple[Result, str]:
    if not instants:
        return "error", "it requested no instant and threw nothing"
    if write.operation in PLANS:
        return "planned", ""
    completed = _completed(table).get(instants[-1].partition(".")[0])
    if completed is None:
        return "error", f"{instants[-1]} did not complete and nothing was thrown"
    if write.operation not in SERVICES and signature(name).encode() not in completed.read_bytes():
        return "error", f"{completed.name} is not signed by {name}"
    return "committed", ""


def _completed(table: Path) -> dict[str, Path]:
    """Return the files of a table's completed commits of all kinds by requested time."""
    home = table / ".hoodie"
    files = [file for folder in (home, home / "timeline") for file in folder.glob("*commit")]
    return {match[1]: file for file in files if (match := _COMPLETED.fullmatch(file.name))}
