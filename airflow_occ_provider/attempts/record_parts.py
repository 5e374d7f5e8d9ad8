"""Pure: the parts of a task run's record: try, queue entry, waits, hint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the task run waits for before it may run the job again."""

    reason: str
    since_ms: int
    instants: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Waiting:
        """Read ``to_json`` back."""
        return cls(**{**values, "instants": tuple(values["instants"])})


@dataclass(frozen=True, slots=True)
class PreflightRecord:
    """The pending instants of others for which a try waits before its driver starts.

    :param since_ms: epoch milliseconds at which it found them.
    :param instants: their requested times; empty once the wait is over.
    """

    try_number: int
    since_ms: int
    instants: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PreflightRecord:
        """Read ``to_json`` back."""
        return cls(**{**values, "instants": tuple(values["instants"])})


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """The task run's request in the queue of its table.

    :param request_id: of the request; a repeated request with it finds the same position.
    :param asked: digest of the requested scopes; other scopes need a new request.
    :param try_number: the try that waits, or that has waited.
    :param earlier: ids of the run's earlier requests, which this one replaces.
    """

    request_id: str
    asked: str
    since_ms: int
    try_number: int
    earlier: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> QueueEntry:
        """Read ``to_json`` back."""
        return cls(**{**values, "earlier": tuple(values.get("earlier", ()))})


@dataclass(frozen=True, slots=True)
class LearnedScope:
    """What the task run expects to change, by the last commits of its task.

    It stays the same for the whole run: a request for something else would lose its place.

    :param table: canonical path of the table.
    :param paths: of file groups and overwritten partitions; empty if the commits gave none.
    """

    table: str
    paths: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LearnedScope:
        """Read ``to_json`` back."""
        return cls(values["table"], tuple(values.get("paths", ())))


@dataclass(frozen=True, slots=True)
class TryKey:
    """The try of a task run.

    :param number: from 1; a clear does not reset it.
    :param max_tries: set by a clear by the user to the number of the last try and the task's retries,
        and by nothing else.
    :param retries: of the task, as its DAG had them.
    """

    number: int
    max_tries: int
    retries: int = 0

    def is_cleared_since(self, last: TryKey) -> bool:
        """Whether the user cleared the task after another try.

        If the retries were changed, a clear may set the same bound again.
        """
        if self.max_tries != last.max_tries:
            return True
        is_bound_set = self.max_tries == last.number + self.retries
        return self.number > last.number and self.retries != last.retries and is_bound_set


@dataclass(frozen=True, slots=True)
class TableBefore:
    """The completed writes of a table before the first attempt of a task run.

    None of them is the run's own. They are known by their names: the order of instants proves nothing,
    since writers' clocks differ, and so do their zones if the table's time zone is local.

    :param commits: requested times of those in the active timeline.
    :param moment_ms: epoch milliseconds, by the storage's clock, of a moment before the first attempt:
        what was archived earlier is not its commit.
    """

    commits: frozenset[str] = frozenset()
    moment_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"commits": sorted(self.commits), "moment_ms": self.moment_ms}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TableBefore:
        """Read ``to_json`` back."""
        return cls(frozenset(content["commits"]), int(content["moment_ms"]))


NOTHING_BEFORE = TableBefore()
"""Of a table that did not exist: every commit may be the task run's own."""
