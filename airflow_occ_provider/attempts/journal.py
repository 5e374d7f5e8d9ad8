"""The journal of a task run: each decision, recorded before it takes effect."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from airflow_occ_provider.attempts.identity import new_identity
from airflow_occ_provider.attempts.record import (
    NOTHING_BEFORE,
    RECORD_KEY,
    AttemptRecord,
    LearnedScope,
    PreflightRecord,
    QueueEntry,
    TableBefore,
    TaskRecord,
    TryKey,
    Waiting,
)
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import CommitStateUnknownError, TableUnreadableError

_log = logging.getLogger(__name__)


class RecordStore(Protocol):
    """The store of a task run's record, which outlives the run's processes."""

    def get(self) -> Any:
        """Return the record that was set last, as JSON values; ``None`` if none.

        :raises StateStoreError: if the store does not answer.
        """

    def set(self, record: Any) -> None:
        """Store the record.

        :raises StateStoreError: if the store does not answer, or refuses this try.
        """


@dataclass(slots=True)
class Journal:
    """The record of a task run, as one of its tries reads and continues it.

    Airflow gives every try its own task instance, and refuses writes of an instance that is no longer
    current. A driver is recorded before it starts. So a try that Airflow has abandoned but that is
    still alive cannot start a driver once the next try is due.

    :param now: the try that reads and writes it.
    :param publish_instants: publishes the instants of this task's driver to the run's other tasks.
    :param labels: of the task run, see ``new_identity``.
    :param is_resumed: whether an earlier process of the same try has deferred the task.
    :raises CommitStateUnknownError: if the record was written by another release.
    :raises StateStoreError: if the state store does not answer.
    """

    store: RecordStore
    now: TryKey
    publish_instants: Callable[[Sequence[str]], None] = lambda _: None
    labels: Sequence[str] = ()
    is_resumed: bool = False
    record: TaskRecord = field(init=False)
    _is_stored: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.record = self._read()

    def store_identity(self) -> None:
        """Record the identity before a driver that is no attempt starts with it."""
        if not self._is_stored:
            self._save(self.record)

    def begin(self, digest: str, since: TableBefore) -> None:
        """Record the work that the identity stands for, with the first attempt.

        :param digest: of the rendered work.
        :param since: what the table has now.
        """
        if self.record.since is None:
            self._change(replace(self.record, digest=digest, since=since, was_lost=False))

    def adopt(self, identity: str) -> None:
        """Record a success under an identity of which there was no record.

        So a retry finds its commit, and a clear by the user lets it write again.
        """
        done = replace(self.record, identity=identity, since=NOTHING_BEFORE, succeeded=True)
        self._save(replace(done, was_lost=False))

    def recover(self, table: str, drivers: Mapping[str, Sequence[Handle]]) -> None:
        """Record the revoked drivers of a lost record as attempts to be settled.

        :param table: base path of the table that they write.
        :param drivers: by the identity in the lost record.
        """
        record = self.record
        recorded = [attempt.driver for attempt in record.attempts]
        started_ms = now_ms()
        new = [(identity, driver) for identity in drivers for driver in drivers[identity]]
        new = [(identity, driver) for identity, driver in new if driver not in recorded]
        for number, (identity, driver) in enumerate(new):
            # Its try is unknown, and so is the bound of tries: it counts as no death of a worker.
            attempt = AttemptRecord(0, -1, identity, table, started_ms + number, driver)
            record = record.with_attempt(attempt)
        others = (identity for identity in drivers if identity not in record.identities)
        self._save(replace(record, abandoned=(*record.abandoned, *others)))

    def abandon(self, digest: str) -> None:
        """Take a fresh identity for other arguments.

        Nothing was committed with the old one.
        """
        self._save(self.record.abandon(digest))

    def keep(self, attempt: AttemptRecord) -> None:
        """Record an attempt."""
        self._save(self.record.with_attempt(attempt))

    def settle(self, attempt: AttemptRecord) -> None:
        """Record that an attempt can no longer change the table."""
        settled = replace(attempt, settled=True)
        self._save(replace(self.record.with_attempt(settled), waiting=None))

    def wait(self, reason: str, instants: tuple[str, ...], now_ms: int) -> Waiting:
        """Record what the run waits for; a continued wait keeps its start."""
        before = self.record.waiting
        waiting = Waiting(reason, before.since_ms if before else now_ms, instants)
        self._save(replace(self.record, waiting=waiting))
        return waiting

    def set_request(self, entry: QueueEntry | None) -> None:
        """Record the run's request in the queue."""
        if entry != self.record.queue_entry:
            self._save(replace(self.record, queue_entry=entry))

    def drop_request(self, *, at_once: bool) -> None:
        """Record that the request ended.

        :param at_once: whether to store it now, not with the next change: a process that continues
            this try would take the entry for its place.
        """
        without_request = replace(self.record, queue_entry=None)
        if at_once:
            self._save(without_request)
        else:
            self._change(without_request)

    def escalate(self, partitions: tuple[str, ...], rivals: tuple[str, ...] = ()) -> None:
        """Record what the next attempt has to write alone, and what it waits for.

        :param partitions: empty for the whole table.
        :param rivals: requested times of pending instants of others, which it waits for first.
        """
        self._save(replace(self.record, escalation=partitions, rivals=rivals))

    def give_way(self, partitions: tuple[str, ...], rivals: tuple[str, ...]) -> None:
        """Record an attempt that gave way: the next one is queued with others that did.

        If it was not the first loss of the run, or nothing is known of it, the next one writes alone.

        :param partitions: what the attempt was about to write; empty if that is unknown.
        :param rivals: as in ``escalate``.
        """
        if partitions and self.record.is_first_loss:
            self._save(replace(self.record, gave_way=partitions, rivals=rivals))
        else:
            self.escalate(partitions, rivals)

    def learn(self, learned: LearnedScope) -> None:
        """Record what was learned from the task's last runs."""
        self._save(replace(self.record, learned=learned))

    def forget_rivals(self) -> None:
        """Record that the rivals have ended."""
        if self.record.rivals or self.record.waiting:
            self._save(replace(self.record, rivals=(), waiting=None))

    def begin_preflight(self, reason: str, instants: tuple[str, ...], now_ms: int) -> PreflightRecord:
        """Record what the driver of this try would lose to, and that it waits for that."""
        preflight = PreflightRecord(self.now.number, now_ms, instants)
        waiting = Waiting(reason, now_ms, instants)
        self._save(replace(self.record, preflight=preflight, waiting=waiting))
        return preflight

    def end_preflight(self) -> None:
        """Record that the wait is over; the try that waited does not look again."""
        preflight = self.record.preflight
        ended = replace(preflight, instants=()) if preflight else None
        self._save(replace(self.record, preflight=ended, waiting=None))

    def stop_waiting(self) -> None:
        """Record that the run waits for nothing; a later wait starts anew."""
        self._save(replace(self.record, waiting=None))

    def succeed(self) -> None:
        """Record that the run did its work; called last."""
        self._save(replace(self.record, succeeded=True, waiting=None))

    def _read(self) -> TaskRecord:
        stored = self.store.get()
        if stored is None:
            fresh = TaskRecord(new_identity(self.labels))
            if self.now.number == 1 and not self.is_resumed:
                return self._change(fresh)
            _log.warning(
                "Airflow's state store has no record of what this task run did before this process of "
                "try %s: it ended before it was queued, or the record is lost.",
                self.now.number,
            )
            return self._save(replace(fresh, was_lost=True))
        try:
            record = TaskRecord.from_json(stored)
        except (ValueError, KeyError, TypeError) as error:
            raise CommitStateUnknownError(
                f"commit state unknown: the task's record {RECORD_KEY} cannot be understood ({error})",
                remedy="run the task with the release that wrote it, or, if no commit of this run is "
                f"in the table, delete {RECORD_KEY} from the task's state store",
            ) from error
        return self._save(record.again() if record.wants_again(self.now) else record)

    def _change(self, record: TaskRecord) -> TaskRecord:
        """Change the record without storing it: the next stored change contains this one."""
        self.record = replace(record, last_try=self.now)
        return self.record

    def _save(self, record: TaskRecord) -> TaskRecord:
        self.store.set(self._change(record).to_json())
        self._is_stored = True
        return self.record


@contextmanager
def known_state(run: Journal) -> Iterator[None]:
    """Rewrap an unreadable table as "commit state unknown" after the first attempt.

    :raises TableUnreadableError: rewrapped if the task run has started an attempt.
    """
    try:
        yield
    except TableUnreadableError as error:
        if not run.record.attempts:
            raise
        raise error.as_commit_state_unknown() from error


def now_ms() -> int:
    """Return the epoch milliseconds of this host's clock."""
    return round(time.time() * 1000)
