"""Instants of a Hudi timeline, in Hudi's terms, and their times.

A time is ``yyyyMMddHHmmssSSS`` in the zone of its writer: that of the writer's JVM, unless the table's
timeline is in UTC. It is never the zone of this process: an instant's own requested file shows it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

_QUARTER_MS = 900_000
_ZONES_MS = range(-12 * 3_600_000, 14 * 3_600_000 + 1)
WRITE_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions by which a writer, not a table service, changes data."""
TABLE_SERVICE_ACTIONS = frozenset({"compaction", "logcompaction", "clustering"})
"""Actions under which a table service is pending; it completes under the action of a write."""
TimeKind: TypeAlias = Literal["completion_time", "requested_time"]


def naive_ms(time: str) -> int | None:
    """Return the milliseconds of an instant time since 1970, as if its zone were UTC.

    :param time: ``yyyyMMddHHmmssSSS``, or without the milliseconds as before Hudi 0.9.
    :returns: ``None`` for a time that is no date, such as that of a bootstrap.
    """
    from datetime import datetime  # a tenth of the import time allowed for the pure core

    try:
        second = datetime.fromisoformat(f"{time[:8]}T{time[8:14]}+00:00")
        return round(second.timestamp()) * 1000 + int(time[14:17] or 0)
    except ValueError:
        return None


def elapsed_ms(first: str, second: str) -> int | None:
    """Return the milliseconds between two instant times of one zone."""
    begun, ended = naive_ms(first), naive_ms(second)
    return None if begun is None or ended is None else ended - begun


def zone_ms(time: str, written_ms: int | None) -> int | None:
    """Return how far the zone of an instant time is ahead of UTC.

    Zones differ by quarters of an hour. What is left is how late the file was written.

    :param written_ms: epoch milliseconds at which its requested file was written.
    :returns: ``None`` if no zone is that far from UTC: the file was copied since.
    """
    named_ms = naive_ms(time)
    if named_ms is None or written_ms is None:
        return None
    ahead_ms = round((named_ms - written_ms) / _QUARTER_MS) * _QUARTER_MS
    return ahead_ms if ahead_ms in _ZONES_MS else None


def moment_ms(time: str, written_ms: int | None) -> int | None:
    """Return the epoch milliseconds of an instant time, by its requested file.

    :returns: the file's time if its zone is not known.
    """
    named_ms, ahead_ms = naive_ms(time), zone_ms(time, written_ms)
    return written_ms if named_ms is None or ahead_ms is None else named_ms - ahead_ms


def from_naive_ms(naive_moment_ms: int) -> str:
    """Return the instant time of which ``naive_ms`` is given."""
    from datetime import UTC, datetime

    seconds, millis = divmod(naive_moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%d%H%M%S}{millis:03}"


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
