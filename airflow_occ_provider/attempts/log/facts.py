"""Pure: the facts that ``in_driver/run_job.py`` reports, one JSON line for each.

A driver writes them to files of its attempt's folder, where nothing else writes. A saved log may hold
them too, among the job's output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_occ_provider.attempts.log.causes import Cause, Chain

_PREFIX = "airflow_occ_provider: "
_DECODER = json.JSONDecoder()

Fact = Mapping[str, Any]
Entry = str | Fact
"""What comes from a driver: a line of its output, or a fact."""


def read_fact(line: str) -> Fact | None:
    """Return the fact that a line reports, if any.

    :param line: of the driver's log; a program's own output may precede the fact.
    """
    _, found, text = line.partition(f"{_PREFIX}{{")
    return parse_fact(f"{{{text}") if found else None


def entry_of(line: str) -> Entry:
    """Return what a line of a saved log means that holds the runner's facts."""
    return read_fact(line) or line


def parse_fact(text: str) -> Fact | None:
    """Return the fact of a line of JSON, if it is one.

    :param text: a line that holds nothing else.
    """
    try:
        fact, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(fact, dict) and not text[end:].strip()
    return fact if is_whole and isinstance(fact.get("fact"), str) else None


def fatal_chain(fact: Fact) -> Chain:
    """Return the exceptions that ended a job.

    Spark puts the stack trace of an executor into a message: its causes are read from there.
    """
    chain = Chain()
    for one in fact.get("causes", ()):
        first, *rest = str(one["message"]).splitlines() or [""]
        name, frames = str(one["type"]), list(map(str, one["frames"]))
        chain.add(Cause(name, first, bool(one["jvm"]), frames), f"{name}: {first}")
        if one["jvm"]:
            chain.add_lost_task(first, first)
            for line in rest:
                chain.add_line(line.strip())
    return chain
