"""The journal of a task run: what was decided, written before it happens."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from airflow_occ_provider.attempts.record import (
    RECORD_KEY,
    AttemptRecord,
    Place,
    TaskRecord,
    TryKey,
    Waiting,
)
from airflow_occ_provider.errors import CommitStateUnknownError, TableUnreadableError

_log = logging.getLogger(__name__)


class RecordStore(Protocol):
    """Where a task run's record outlives the processes of its tries."""

    def get(self) -> Any:
        """Return the record as it was set last, as JSON values; ``None`` if there is none.

        :raises StateStoreError: if the store does not answer.
        """

    def set(self, record: Any) -> None:
        """Keep the record.

        :raises StateStoreError: if the store does not answer, or refuses this try.
        """


class Journal:
    """The record of a task run, as one of its tries reads and goes on writing it.

    Airflow gives every try a task instance of its own, and refuses what one writes that is none any
    more: so a try that was given up, but lives, cannot start a driver once the next one is due, as
    a driver has to be written down first.

    :param store: keeps the record.
    :param now: the try that reads and writes it.
    :param publish: shows the run's other tasks the instants that this task's driver writes.
    :raises CommitStateUnknownError: if the record was written by another release.
    :raises StateStoreError: if the state store does not answer.
    """

    def __init__(
        self,
        store: RecordStore,
        now: TryKey,
        publish: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self._store = store
        self.now = now
        self.publish_instants = publish
        self.record = self._read()

    def begin(self, digest: str, since: str) -> None:
        """Say which work the identity stands for, where no attempt has said it yet.

        :param digest: of the rendered work.
        :param since: the table's youngest completed write, or empty.
        """
        if self.record.since is None:
            self._save(replace(self.record, digest=digest, since=since))

    def abandon(self, digest: str) -> None:
        """Take a fresh identity: the arguments are others, and nothing was committed with the old."""
        self._save(self.record.abandon(digest))

    def keep(self, attempt: AttemptRecord) -> None:
        """Write an attempt down."""
        self._save(self.record.with_attempt(attempt))

    def settle(self, attempt: AttemptRecord) -> None:
        """Write down that nothing of an attempt can reach the table any more."""
        settled = replace(attempt, settled=True)
        self._save(replace(self.record.with_attempt(settled), waiting=None))

    def wait(self, reason: str, instants: tuple[str, ...], now_ms: int) -> Waiting:
        """Write down what is waited for; a wait that goes on keeps its begin."""
        before = self.record.waiting
        waiting = Waiting(reason, before.since_ms if before else now_ms, instants)
        self._save(replace(self.record, waiting=waiting))
        return waiting

    def stand(self, place: Place | None) -> None:
        """Write down where the run stands in line."""
        if place != self.record.place:
            self._save(replace(self.record, place=place))

    def escalate(self, partitions: tuple[str, ...], rivals: tuple[str, ...] = ()) -> None:
        """Record what the next attempt has to write alone, and which instants it waits for first.

        :param partitions: empty for the whole table.
        :param rivals: requested times of pending instants of others.
        """
        self._save(replace(self.record, escalation=partitions, rivals=rivals))

    def forget_rivals(self) -> None:
        """Record that the rivals have ended."""
        if self.record.rivals or self.record.waiting:
            self._save(replace(self.record, rivals=(), waiting=None))

    def stop_waiting(self) -> None:
        """Write down that nothing is waited for; a later wait begins anew."""
        self._save(replace(self.record, waiting=None))

    def succeed(self) -> None:
        """Write down that the run did its work; called last."""
        self._save(replace(self.record, succeeded=True, waiting=None))

    def _read(self) -> TaskRecord:
        kept = self._store.get()
        if kept is None:
            if self.now.number > 1:
                _log.warning("There is no record of the tries before %s.", self.now.number)
            return self._save(TaskRecord())
        try:
            record = TaskRecord.from_json(kept)
        except (ValueError, KeyError, TypeError) as error:
            raise CommitStateUnknownError(
                f"commit state unknown: the task's record {RECORD_KEY} cannot be understood ({error})",
                remedy="run the task with the release that wrote it, or, if no commit of this run is "
                f"in the table, delete {RECORD_KEY} from the task's state store",
            ) from error
        return self._save(record.again() if record.wants_again(self.now) else record)

    def _save(self, record: TaskRecord) -> TaskRecord:
        self.record = replace(record, last_try=self.now)
        self._store.set(self.record.to_json())
        return self.record


@contextmanager
def known_state(run: Journal) -> Iterator[None]:
    """Have a table that cannot be read mean an unknown commit state, once an attempt has begun.

    :raises TableUnreadableError: in those words.
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
