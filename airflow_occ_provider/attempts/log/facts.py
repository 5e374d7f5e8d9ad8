"""Pure: the facts that ``in_driver/run_job.py`` reports, one JSON line for each.

A driver writes them to files of its attempt's folder, where nothing else writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_occ_provider.attempts.log.causes import Cause, Chain

_DECODER = json.JSONDecoder()

Fact = Mapping[str, Any]
Entry = str | Fact
"""What comes from a driver: a line of its output, or a fact."""


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
    for cause in fact.get("causes", ()):
        first, *rest = str(cause["message"]).splitlines() or [""]
        name, frames = str(cause["type"]), list(map(str, cause["frames"]))
        chain.add(Cause(name, first, bool(cause["jvm"]), frames), f"{name}: {first}")
        if cause["jvm"]:
            for line in rest:
                chain.add_line(line)
    return chain
