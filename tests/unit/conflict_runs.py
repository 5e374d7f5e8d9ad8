"""Runs of ``make rig NAME=bench.conflict`` made by hand, and modules of it with a fault."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from tests.bench.conflict.events import Event, Job, Run

A, B, C = Job("a", ("p0",), 1), Job("b", ("p0", "p1"), 1), Job("c", ("p1",), 1)
FAR = Job("far", ("p9",), 1)


def run_of(jobs, *events, arm="a", slots=3, **given):
    """Return a run of jobs."""
    return Run("hot", arm, 0, 7, slots, tuple(jobs), events, **given)


def lost(writer, number, start_s, end_s):
    """Return a driver whose write was refused."""
    return Event(writer, number, start_s, end_s, committed=False)


def done(writer, number, start_s, end_s, span=None, **given):
    """Return a driver that committed; without a span, its write took all of its time."""
    requested_s, completed_s = span or (start_s, end_s)
    return Event(
        writer,
        number,
        start_s,
        end_s,
        committed=True,
        requested_s=requested_s,
        completed_s=completed_s,
        **given,
    )


def mutant_of(module, old, new, monkeypatch):
    """Return a module in which one piece of its text is replaced."""
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, "the mutant changes nothing, or several things"
    mutant = ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)
    exec(source.replace(old, new), vars(mutant))  # noqa: S102 - our own text
    return mutant
