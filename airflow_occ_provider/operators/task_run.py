"""What a task run remembers across its tries, kept in Airflow's task state store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    StateStoreError,
    TableUnreadableError,
)
from airflow_occ_provider.jobs.record import RECORD_KEY, Attempt, TaskRecord, TryKey, Waiting
from airflow_occ_provider.operators.retry_policy import SPENT_KEY

if TYPE_CHECKING:
    from airflow.sdk import Context

_SAVE_TRIES = 3
_SAVE_PAUSE_S = 1.0


class TaskRun:
    """The record of a task run, as one of its tries reads and goes on writing it.

    Airflow refuses what a try writes after the next one has begun: so a try that was given up,
    but lives, cannot start a driver any more, as a driver has to be written down first.

    :param context: of the try.
    :raises CommitStateUnknownError: if the record was written by a newer release.
    """

    def __init__(self, context: Context) -> None:
        self._store: Any = cast("Any", context).get("task_state_store")
        ti = context["ti"]
        self.now = TryKey(ti.try_number, ti.max_tries or 0, str(ti.id))
        self.record = self._read()

    def begin(self, digest: str, since: str) -> None:
        """Say which work the identity stands for, where no attempt has said it yet.

        :param digest: of the rendered work.
        :param since: the table's youngest completed write, or empty.
        """
        if self.record.since is None:
            self._save(replace(self.record, digest=digest, since=since))

    def renew(self) -> None:
        """Take a fresh identity: what follows is other work."""
        self._save(self.record.renewed())

    def keep(self, attempt: Attempt) -> None:
        """Write an attempt down."""
        self._save(self.record.with_attempt(attempt))

    def settle(self, attempt: Attempt, **changes: Any) -> None:
        """Write down that nothing of an attempt can reach the table any more."""
        settled = replace(attempt, settled=True, **changes)
        self._save(replace(self.record.with_attempt(settled), waiting=None))

    def wait(self, reason: str, instants: tuple[str, ...], now_ms: int) -> Waiting:
        """Write down what is waited for; a wait that goes on keeps its begin."""
        before = self.record.waiting
        waiting = Waiting(reason, before.since_ms if before else now_ms, instants)
        self._save(replace(self.record, waiting=waiting))
        return waiting

    def succeed(self) -> None:
        """Write down that the run did its work; called last."""
        self._save(replace(self.record, succeeded=True, waiting=None))

    def _read(self) -> TaskRecord:
        kept = self._store.get(RECORD_KEY) if self._store is not None else None
        if kept is None:
            return self._save(TaskRecord())
        try:
            record = TaskRecord.from_json(kept)
        except (ValueError, KeyError, TypeError) as error:
            raise CommitStateUnknownError(
                f"commit state unknown: the task's record {RECORD_KEY} cannot be understood ({error})",
                remedy="run the task with the release that wrote it, or, if no commit of this run is "
                f"in the table, delete {RECORD_KEY} from the task's state store",
            ) from error
        if not record.is_of(self.now):
            self._store.delete(RECORD_KEY)
            self._store.delete(SPENT_KEY)
            return self._save(TaskRecord())
        return self._save(record.renewed() if record.wants_again(self.now) else record)

    def _save(self, record: TaskRecord) -> TaskRecord:
        self.record = replace(record, last_try=self.now)
        if self._store is not None:
            self._write(self.record.to_json())
        return self.record

    def _write(self, value: dict[str, Any]) -> None:
        for left in reversed(range(_SAVE_TRIES)):
            try:
                self._store.set(RECORD_KEY, value)
                return
            except (AirflowRuntimeError, OSError) as error:
                if not left:
                    raise StateStoreError(
                        f"Airflow's task state store did not take the record of try {self.now.number}: "
                        f"{error}",
                        remedy="nothing, if a younger try of the task is running; else look at the API "
                        "server's log",
                    ) from error
                time.sleep(_SAVE_PAUSE_S)


@contextmanager
def known_state(run: TaskRun) -> Iterator[None]:
    """Have a table that cannot be read mean an unknown commit state, once an attempt has begun.

    :raises TableUnreadableError: in those words.
    """
    try:
        yield
    except TableUnreadableError as error:
        raise (error.after_an_attempt() if run.record.attempts else error) from error
