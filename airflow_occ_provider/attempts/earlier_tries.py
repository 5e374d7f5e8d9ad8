"""Settles what earlier tries of a task run left, before its next attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from airflow_occ_provider.attempts.attempt_recorder import log_retired_heartbeats
from airflow_occ_provider.attempts.audit import run_again
from airflow_occ_provider.attempts.commit import Commit, earlier_commit
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.settle import retire_heartbeats
from airflow_occ_provider.attempts.submission import remove_leftovers
from airflow_occ_provider.attempts.submitter import Handle, Running, Submitter, Unseen
from airflow_occ_provider.attempts.survivor import Fence, Settled, TableState, Wait, judge
from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    DataLossError,
    FenceError,
    WorkerLostError,
)
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable

_FENCES = 3
_LOOKS = 3


class EarlierTries:
    """The attempts of a task run that may still reach the table.

    :param run: the task run.
    :param open_table: opens a table by its base path.
    :param rule: how the writers' heartbeats are judged.
    :param clean: has Hudi roll back the failed writes of a table.
    :param log: the task's log.
    :param submitter: ends the drivers of earlier tries, as far as it can see them.
    """

    def __init__(
        self,
        run: Journal,
        open_table: Callable[[str], HudiTable],
        rule: HeartbeatRule,
        *,
        clean: Callable[[str], None],
        log: Any,
        submitter: Submitter,
    ) -> None:
        self._run = run
        self._open_table = open_table
        self._rule = rule
        self._clean = clean
        self._log = log
        self._submitter = submitter

    def end_drivers(self) -> None:
        """End the drivers of earlier tries on this host, and record their end.

        :raises FenceError: if a process does not end.
        """
        for attempt in self._run.record.unsettled:
            handle = attempt.driver
            is_seen = handle is not None and not isinstance(self._submitter.poll(handle), Unseen)
            was_running = self._end_all(attempt)
            remove_leftovers(attempt.identity)
            if is_seen and self._submitter.traits.end_is_final and not attempt.end:
                end = f"ended by try {self._run.now.number}" if was_running else "found ended"
                self._log.info("The driver of try %s, %s, was %s.", attempt.try_number, handle, end)
                self._run.keep(replace(attempt, end=end, ended_ms=now_ms()))

    def _end_all(self, attempt: AttemptRecord) -> bool:
        """End an attempt's driver and all that it started; return whether anything was alive."""
        for looked in range(_LOOKS + 1):
            living = self._submitter.find(attempt.identity) or self._running(attempt)
            if living is None:
                return looked > 0
            if looked < _LOOKS:
                self._submitter.end(living)
        raise FenceError(
            f"{living} of try {attempt.try_number} does not end",
            remedy="look what it waits for (a dead mount?), end it, and clear the task",
        )

    def _running(self, attempt: AttemptRecord) -> Handle | None:
        handle = attempt.driver
        return handle if handle and isinstance(self._submitter.poll(handle), Running) else None

    def commit(self, table: str, digest: str) -> Commit | None:
        """Return what an earlier try committed, after a check of its data.

        :param table: base path of the table.
        :param digest: of this try's work.
        :raises CommitStateUnknownError: if it is unknown whether there is a commit, or whether it is
            this try's work.
        :raises DataLossError: if files of the commit are gone; nothing is rolled back here.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        record = self._run.record
        if record.since is None:
            return None
        try:
            commit = self._find(table)
        except DataLossError as loss:
            if not self._was_fenced(loss.instant):
                raise
            raise DataLossError(
                f"{loss.message}. The lazy clean that fenced the driver of an earlier try did it, while "
                "that driver committed",
                instant=loss.instant,
                remedy=run_again(loss.statement),
                statement=loss.statement,
            ) from loss
        if commit is None:
            return None
        own = (one for one in record.attempts if one.identity in record.identities)
        cleared = any(one.max_tries != self._run.now.max_tries for one in own)
        if cleared and record.digest != digest:
            raise CommitStateUnknownError(
                f"commit {commit.instant.time} of this task run was made with another application, "
                "other arguments or another table than this try has: whether it is this try's work "
                "is unknown",
                remedy="if it is, mark the task as success; if not, delete hudi_write from the "
                "task's state store and clear the task",
            )
        self._log.info("Commit %s of an earlier try is in the table: done.", commit.instant)
        return commit

    def _find(self, table: str) -> Commit | None:
        record = self._run.record
        return earlier_commit(
            self._open_table(table),
            record.identities,
            record.since or "",
            record.instants_in(table),
            must_exist=record.has_seen(table),
        )

    def _was_fenced(self, instant: str) -> bool:
        attempts = self._run.record.attempts
        return any(instant in attempt.instants and not attempt.end for attempt in attempts)

    def close(self) -> None:
        """Settle them all: the task run's commit is in the table."""
        for attempt in self._run.record.unsettled:
            if attempt.end:
                table = self._open_table(attempt.table)
                pending = {one.time for one in table.snapshot().timeline.pending_writes()}
                self._retire(attempt, table, [time for time in attempt.instants if time in pending])
            self._run.settle(attempt)

    def settle(self) -> Wait | None:
        """Settle them one by one; return the wait that is needed, if any.

        :raises FenceError: if an instant cannot be fenced.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        for attempt in self._run.record.unsettled:
            wait = self._settle(attempt)
            if wait:
                waiting = self._run.wait(wait.reason, wait.instants, now_ms())
                seconds = (now_ms() - waiting.since_ms) / 1000
                self._log.info("Waiting (%.0f s so far): %s", seconds, wait.reason)
                return wait
        return None

    def _settle(self, attempt: AttemptRecord) -> Wait | None:
        table = self._open_table(attempt.table)
        for fences_left in reversed(range(_FENCES)):
            state = TableState.at(table.snapshot(missing_ok=not attempt.instants), now_ms(), self._rule)
            step = judge(attempt, state, self._run.record.waiting)
            if isinstance(step, Wait):
                return step
            if isinstance(step, Settled):
                self._retire(attempt, table, step.ghosts)
                self._run.settle(attempt)
                return None
            if fences_left:
                self._roll_back(attempt, step)
        raise FenceError(
            f"what try {attempt.try_number} left is still pending after {_FENCES - 1} lazy cleans",
            remedy="CALL rollback_to_instant for the instants that the log names, and clear the task",
        )

    def _roll_back(self, attempt: AttemptRecord, fence: Fence) -> None:
        self._log.info(
            "The end of the driver of try %s (%s) was not seen, and %s has stopped beating: Hudi's lazy "
            "clean is asked to roll it back, so that the driver cannot commit it any more.",
            attempt.try_number,
            attempt.driver,
            ", ".join(fence.instants),
        )
        self._clean(attempt.table)

    def _retire(self, attempt: AttemptRecord, table: HudiTable, ghosts: Sequence[str]) -> None:
        retired = retire_heartbeats(table, ghosts)
        log_retired_heartbeats(self._log, f"Try {attempt.try_number}", retired)


def refuse_deaths(run: Journal, budget: int) -> None:
    """Refuse another driver if too many tries died together with their worker.

    No retry policy was asked about those tries.

    :param run: the task run.
    :param budget: how many such tries are allowed.
    :raises WorkerLostError: if there were more.
    """
    died = run.record.unexplained(run.now)
    if len(died) > budget:
        raise WorkerLostError(
            f"the worker died together with its driver in tries {', '.join(map(str, died))}: the "
            f"job is not run again ({budget} such retries are allowed)",
            remedy="look what ended the worker (out of memory, an eviction, a lost node), give it "
            "more memory than the driver takes, and clear the task",
        )
