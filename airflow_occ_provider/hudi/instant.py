"""Instants of a Hudi timeline, as the names of their files tell them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

WRITE_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions by which a writer, not a table service, changes data."""

# Hudi 1.2.0, InstantFileNameParserV2: a completed file carries its completion time behind "_".
# The action may miss: the inflight file of a commit is named "<time>.inflight".
_FILE_NAME = re.compile(
    r"(?P<time>\d{14,20})(?:_(?P<completion>\d{14,20}))?"
    r"(?:\.(?P<action>[a-z]+?))??(?:\.(?P<pending>requested|inflight))?"
)


class State(StrEnum):
    """How far an instant has come, in Hudi's words."""

    REQUESTED = "REQUESTED"
    INFLIGHT = "INFLIGHT"
    COMPLETED = "COMPLETED"


_ORDER = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on the table at one state.

    :param time: requested time, ``yyyyMMddHHmmssSSS`` in the table's time zone.
    :param action: Hudi's word for it, such as ``commit`` or ``rollback``.
    :param state: how far it has come.
    :param file_name: the timeline file that says so.
    :param completion_time: same format as ``time``; ``None`` where the file does not carry one.
    """

    time: str
    action: str
    state: State
    file_name: str
    completion_time: str | None = None

    @property
    def completed(self) -> bool:
        """Whether the action is done."""
        return self.state is State.COMPLETED

    @property
    def is_write(self) -> bool:
        """Whether a writer's action (not clean, rollback, compaction plan, ...)."""
        return self.action in WRITE_ACTIONS

    @property
    def progress(self) -> int:
        """A number that grows from requested to completed."""
        return _ORDER[self.state]

    def __str__(self) -> str:
        return f"{self.time} {self.action} {self.state}"


def parse_file_name(name: str) -> Instant | None:
    """Read a timeline file's name, or return ``None`` for anything else in the folder.

    :param name: the bare file name, without folders.
    """
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    pending, action = match["pending"], match["action"]
    if action is None:
        if pending != "inflight":
            return None
        action = "commit"
    state = State(pending.upper()) if pending else State.COMPLETED
    return Instant(match["time"], action, state, name, match["completion"])
