"""Tables that are made anew while something watches them."""

from __future__ import annotations

import shutil

from tests.support.commit_triggers import (
    T,
    complete,
    instants,
)
from tests.support.table_properties import table_properties


def in_turn(*steps):
    """Return what does one thing after the other, each as soon as its condition holds."""
    due = list(steps)

    def between():
        if due and due[0][0]():
            due.pop(0)[1]()

    return between


def all_of(received):
    return [instant for event in received for instant in instants(event)]


def make(folder, *numbers, version=9):
    """Make a table elsewhere and move it to its place, so that no listing sees a part of it."""
    made = folder.parent.parent / "made" / ".hoodie"
    (made / "timeline" / "history").mkdir(parents=True)
    layout = 2 if version >= 8 else 1
    (made / "hoodie.properties").write_text(table_properties(version=version, layout=layout))
    for number in numbers:
        if layout == 2:
            complete(made, number)
        else:
            (made / f"{T[number]}.commit").write_text("{}")
    if folder.parent.exists():
        folder.parent.rename(folder.parent.parent / "old")
        shutil.rmtree(folder.parent.parent / "old", ignore_errors=True)
    made.parent.rename(folder.parent)
