"""Pure: the facts that ``in_driver/run_job.py`` reports, one JSON line for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_occ_provider.attempts.log.causes import Cause, Chain

_PREFIX = "airflow_occ_provider: "
_DECODER = json.JSONDecoder()

Fact = Mapping[str, Any]


def read_fact(line: str) -> Fact | None:
    """Return the fact that a line reports, if any.

    :param line: of the driver's log; a program's own output may precede the fact.
    """
    _, found, text = line.partition(f"{_PREFIX}{{")
    if not found:
        return None
    try:
        fact, end = _DECODER.raw_decode(f"{{{text}")
    except (ValueError, RecursionError):
        return None
    is_whole = not text[end - 1 :].strip()
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
