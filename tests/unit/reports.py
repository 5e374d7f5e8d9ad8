"""What our runner reports of a driver, as the attempt gets it."""

from __future__ import annotations

import json
from dataclasses import asdict

from airflow_occ_provider.reading.saved_log import PrintedExceptions


def fact(name, **details):
    return json.loads(json.dumps({"fact": name, **details}))


def cause(kind, message, *, jvm=True, frames=()):
    return {"type": kind, "message": message, "jvm": jvm, "frames": list(frames)}


def reported(lines):
    """A driver's lines, and the exception that ended it as our runner reports it."""
    printed = PrintedExceptions()
    chains = [chain for chain in map(printed.feed, lines) if chain]
    thrown = [chain for chain in chains if chain.is_thrown]
    causes = [asdict(each) for each in (thrown or chains)[-1].causes]
    return [fact("protected", options=20, followed=False), *lines, fact("fatal", causes=causes)]
