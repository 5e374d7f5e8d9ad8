"""The lines by which our runner reports what happened in a driver."""

from __future__ import annotations

import json
from dataclasses import asdict

from airflow_occ_provider.attempts.log.traces import TraceReader


def fact(name, **details):
    return f"airflow_occ_provider: {json.dumps({'fact': name, **details})}"


def cause(kind, message, *, jvm=True, frames=()):
    return {"type": kind, "message": message, "jvm": jvm, "frames": list(frames)}


def reported(lines):
    """A driver's lines, and the exception that ended it as our runner reports it."""
    traces = TraceReader()
    for line in lines:
        traces.feed(line)
    causes = [asdict(one) for one in traces.last.causes]
    return [fact("protected", options=20, followed=False), *lines, fact("fatal", causes=causes)]
