"""Pure: a task run's record of its tries, as JSON in Airflow's task state store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_occ_provider.attempts.identity import new_identity, renewed
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.storage.address import is_one_table

RECORD_KEY = "hudi_write"
INSTANTS_KEY = "hudi_instants"
"""XCom of a writing task: requested times of its driver's writes, once its log shows them."""
_FORMAT = 1
_ATTEMPTS_KEPT = 40
_SEEN_BY_ITS_TRY = ("exit code ", "signal ")


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


_NO_TRY = TryKey(0, 0)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One run of the Spark job, as far as it has been recorded.

    :param max_tries: Airflow's bound of tries at that time; only a clear by the user raises it.
    :param identity: signs its commits.
    :param driver: its handle; ``None`` before it was started.
    :param application_id: the job's id at the cluster manager, if the log shows it.
    :param instants: requested times of its writes, as far as they were recorded.
    :param end: how the end of its driver was observed; empty until then.
    :param ended_ms: epoch milliseconds at which that was observed.
    :param log_read: whether the driver's log was read to its end, so that all its writes are recorded.
    :param outcome: its outcome by the table, one of ``attempts.outcome.Outcome``.
    :param settled: whether it can no longer change the table.
    :param order_token: of the lease under which it runs, if there is one.
    :param lock_count: how often Hudi's lock had been requested before it; ``None`` if unknown.
    :param ended_well: whether the job ran to its end, by what its runner reported and how the driver
        ended; ``None`` if unknown.
    """

    try_number: int
    max_tries: int
    identity: str
    table: str
    started_ms: int
    driver: Handle | None = None
    application_id: str = ""
    instants: tuple[str, ...] = ()
    end: str = ""
    ended_ms: int = 0
    log_read: bool = False
    outcome: str = ""
    settled: bool = False
    order_token: str = ""
    lock_count: int | None = None
    ended_well: bool | None = None

    @property
    def is_unexplained(self) -> bool:
        """Whether its driver was started, but its try died before it recorded an end."""
        return bool(self.driver) and not (self.outcome or self.end.startswith(_SEEN_BY_ITS_TRY))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        driver = self.driver.to_json() if self.driver else None
        return {**values, "driver": driver, "instants": list(self.instants)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> AttemptRecord:
        """Read ``to_json`` back."""
        driver = Handle.from_json(values["driver"]) if values["driver"] else None
        return cls(**{**values, "driver": driver, "instants": tuple(values["instants"])})


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The tries of one task run.

    :param digest: of the rendered work that the identity stands for.
    :param since: what the table had before the first attempt; ``None`` while there was none.
    :param abandoned: earlier identities, of the same work with other arguments.
    :param last_try: the try that wrote this record last.
    :param succeeded: whether the run has done its work; set last.
    :param attempts: oldest first.
    :param gave_way: the partitions that an attempt which gave way was about to write; empty if none did.
    :param escalation: the partitions that an attempt which lost a conflict was about to write, empty
        for the whole table; ``None`` while none has lost, but for the first one that gave way.
    :param rivals: requested times of the pending instants of others that it lost to; the run waits
        for them before the next attempt.
    :param preflight: the latest preflight that found something.
    :param learned: what was learned from the task's last runs; ``None`` before it was looked for.
    :param is_repeated: whether the user cleared the task after a success, so that its commit does not
        count.
    :param was_lost: whether an earlier process of the run may have written something, and its record is
        gone; until the work of this record begins.
    """

    identity: str = field(default_factory=new_identity)
    digest: str = ""
    since: TableBefore | None = None
    abandoned: tuple[str, ...] = ()
    last_try: TryKey = _NO_TRY
    succeeded: bool = False
    attempts: tuple[AttemptRecord, ...] = ()
    waiting: Waiting | None = None
    queue_entry: QueueEntry | None = None
    gave_way: tuple[str, ...] = ()
    escalation: tuple[str, ...] | None = None
    rivals: tuple[str, ...] = ()
    preflight: PreflightRecord | None = None
    learned: LearnedScope | None = None
    is_repeated: bool = False
    was_lost: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, with the youngest attempts and all unsettled ones."""
        old = len(self.attempts) - _ATTEMPTS_KEPT
        attempts = [
            attempt for n, attempt in enumerate(self.attempts) if n >= old or not attempt.settled
        ]
        values = asdict(replace(self, attempts=(), since=None))
        values["place"] = values.pop("queue_entry")
        values["since"] = self.since.to_json() if self.since else None
        document = {"format": _FORMAT, **values, "attempts": [attempt.to_json() for attempt in attempts]}
        return dict(json.loads(json.dumps(document)))  # tuples become lists

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskRecord:
        """Read ``to_json`` back.

        :raises ValueError: for a record of another format.
        """
        if values.get("format") != _FORMAT:
            raise ValueError(f"format {values.get('format')!r}, known is {_FORMAT}")
        return cls(
            identity=values["identity"],
            digest=values["digest"],
            since=TableBefore.from_json(since) if (since := values["since"]) else None,
            abandoned=tuple(values["abandoned"]),
            last_try=TryKey(**values["last_try"]),
            succeeded=values["succeeded"],
            attempts=tuple(map(AttemptRecord.from_json, values["attempts"])),
            waiting=Waiting.from_json(values["waiting"]) if values["waiting"] else None,
            queue_entry=QueueEntry.from_json(entry) if (entry := values.get("place")) else None,
            gave_way=tuple(values.get("gave_way", ())),
            escalation=tuple(lost) if (lost := values.get("escalation")) is not None else None,
            rivals=tuple(values.get("rivals", ())),
            preflight=PreflightRecord.from_json(last) if (last := values.get("preflight")) else None,
            learned=LearnedScope.from_json(scope) if (scope := values.get("learned")) else None,
            is_repeated=values.get("is_repeated", False),
            was_lost=values.get("was_lost", False),
        )

    @property
    def is_first_loss(self) -> bool:
        """Whether no attempt of the run has lost a conflict or given way before."""
        return not self.gave_way and self.escalation is None

    @property
    def planned(self) -> tuple[str, ...]:
        """The partitions that earlier attempts were about to write, as far as known."""
        return (*self.gave_way, *(self.escalation or ()))

    def wants_again(self, now: TryKey) -> bool:
        """Whether the user cleared the task after its success, so that it writes again."""
        return self.succeeded and now.is_cleared_since(self.last_try)

    @property
    def unsettled(self) -> tuple[AttemptRecord, ...]:
        """The attempts that may still change the table."""
        return tuple(attempt for attempt in self.attempts if not attempt.settled)

    @property
    def has_ended(self) -> bool:
        """Whether every driver's end is recorded, so that no try looks at one again."""
        return all(attempt.end for attempt in self.unsettled)

    def unexplained(self, now: TryKey) -> tuple[int, ...]:
        """Return the earlier tries that died before they recorded an end.

        Only those since the user last cleared the task.
        """
        attempts = (attempt for attempt in self.attempts if attempt.max_tries == now.max_tries)
        return tuple(
            attempt.try_number
            for attempt in attempts
            if attempt.is_unexplained and attempt.try_number < now.number
        )

    @property
    def identities(self) -> tuple[str, ...]:
        """Every identity with which the work of this run may have been signed."""
        return (self.identity, *self.abandoned)

    def instants_in(self, table: str) -> tuple[str, ...]:
        """Return the requested times that attempts at this work recorded for a table."""
        return tuple(instant for attempt in self._at_work_on(table) for instant in attempt.instants)

    def has_seen(self, table: str) -> bool:
        """Whether a table is known to have existed."""
        had_commits = self.since is not None and self.since.commits
        return bool(self.instants_in(table) or (had_commits and self._at_work_on(table)))

    @property
    def own_attempts(self) -> list[AttemptRecord]:
        """The attempts at this work, oldest first."""
        return [attempt for attempt in self.attempts if attempt.identity in self.identities]

    def _at_work_on(self, table: str) -> list[AttemptRecord]:
        return [attempt for attempt in self.own_attempts if is_one_table(attempt.table, table)]

    def again(self) -> TaskRecord:
        """Return the record for work to be repeated; keeps the attempts.

        The attempts are still to be settled and shown. The entry is kept as one to give up: its request
        may still be queued.
        """
        entry = replace(self.queue_entry, asked="") if self.queue_entry else None
        return TaskRecord(
            renewed(self.identity),
            attempts=self.attempts,
            last_try=self.last_try,
            queue_entry=entry,
            is_repeated=True,
        )

    def abandon(self, digest: str) -> TaskRecord:
        """Return it with a fresh identity, for other arguments.

        A commit of the old identity still counts.
        """
        abandoned = (*self.abandoned, self.identity)
        identity = renewed(self.identity)
        fresh = replace(self, identity=identity, digest=digest, abandoned=abandoned)
        return replace(fresh, gave_way=(), escalation=None)

    def with_attempt(self, attempt: AttemptRecord) -> TaskRecord:
        """Return it with an attempt added, or replaced if try and start are equal."""
        attempts = {_key(earlier): earlier for earlier in self.attempts} | {_key(attempt): attempt}
        return replace(self, attempts=tuple(attempts.values()))


def _key(attempt: AttemptRecord) -> tuple[int, int]:
    return attempt.try_number, attempt.started_ms
