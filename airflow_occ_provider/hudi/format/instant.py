"""Instants of a Hudi timeline, in Hudi's terms."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

WRITE_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions by which a writer, not a table service, changes data."""

TABLE_SERVICE_ACTIONS = frozenset({"compaction", "logcompaction", "clustering"})
"""Actions under which a table service is pending; it completes under the action of a write."""


TimeKind: TypeAlias = Literal["completion_time", "requested_time"]


class State(StrEnum):
    """The state of an instant, in Hudi's terms."""

    REQUESTED = "REQUESTED"
    INFLIGHT = "INFLIGHT"
    COMPLETED = "COMPLETED"


class Instant(NamedTuple):
    """One action on the table at its highest state. Instants sort by their time.

    A named tuple and not a dataclass, since a timeline makes thousands of them at once.

    :param time: requested time, ``yyyyMMddHHmmssSSS`` in the table's time zone.
    :param action: Hudi's action, such as ``commit`` or ``rollback``. What was requested as a
        ``compaction`` is a ``commit`` once it is completed (see ``requested_action``).
    :param state: the state that it has reached.
    :param file_name: the file that shows the state: of the timeline, or of the history once archived.
    :param completion_time: same format as ``time``; ``None`` if it is pending or the time is unknown.
    :param requested_file: name of its requested file (a service's plan), if the timeline has it.
    :param inflight_file: name of its inflight file (a write's profile), if the timeline has it.
    """

    time: str
    action: str
    state: State
    file_name: str
    completion_time: str | None = None
    requested_file: str | None = None
    inflight_file: str | None = None

    @property
    def completed(self) -> bool:
        """Whether the action is completed."""
        return self.state is State.COMPLETED

    @property
    def completion_stamp(self) -> str | None:
        """The completion time that Hudi took under its lock, since table version 8."""
        return self.completion_time if "_" in self.file_name else None

    def time_of(self, kind: TimeKind) -> str:
        """Return its time of a kind; empty if it is pending or its time is unknown.

        :raises ValueError: for another kind.
        """
        if kind == "completion_time":
            return self.completion_time or ""
        if kind == "requested_time":
            return self.time
        raise ValueError(f"{kind!r} is no time of an instant: use completion_time or requested_time")

    @property
    def archived(self) -> bool:
        """Whether it comes from the history or from an archive of layout 1."""
        return self.file_name.endswith(".parquet") or ".archive." in self.file_name

    @property
    def requested_action(self) -> str:
        """The action as it was requested, such as ``compaction`` for a later ``commit``.

        Without a requested file, as in the history, it is ``action``.
        """
        return (self.requested_file or f".{self.action}").split(".")[1]

    @property
    def is_write(self) -> bool:
        """Whether it is a writer's action, and not a clean, rollback or compaction plan."""
        return self.action in WRITE_ACTIONS

    def __str__(self) -> str:
        return f"{self.time} {self.action} {self.state}"
