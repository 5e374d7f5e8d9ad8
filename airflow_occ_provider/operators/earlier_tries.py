"""Before an attempt: what earlier tries of the task run have left is settled first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    DataLossError,
    FenceError,
)
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.attempt import remove_leftovers
from airflow_occ_provider.jobs.audit import run_again
from airflow_occ_provider.jobs.commit import Commit, earlier_commit
from airflow_occ_provider.jobs.driver_process import ProcessTable
from airflow_occ_provider.jobs.record import Attempt
from airflow_occ_provider.jobs.settle import retire_heartbeats
from airflow_occ_provider.jobs.survivor import Fence, Look, Settled, Wait, judge
from airflow_occ_provider.operators.driver import end_survivors
from airflow_occ_provider.operators.task_run import TaskRun, now_ms
from airflow_occ_provider.operators.told_attempt import tell_retired
from airflow_occ_provider.storage.table import HudiTable

_FENCES = 3


class EarlierTries:
    """The attempts of a task run that may still reach the table.

    :param run: the task run.
    :param open_table: opens a table by its base path.
    :param rule: how the writers' heartbeats are judged.
    :param clean: has Hudi roll back the failed writes of a table.
    :param log: the task's log.
    """

    def __init__(
        self,
        run: TaskRun,
        open_table: Callable[[str], HudiTable],
        rule: HeartbeatRule,
        clean: Callable[[str], None],
        log: Any,
    ) -> None:
        self._run = run
        self._open_table = open_table
        self._rule = rule
        self._clean = clean
        self._log = log

    def end_drivers(self) -> None:
        """End what earlier tries have running on this host, and write down what was seen.

        :raises FenceError: if something does not end.
        """
        for attempt in self._run.record.unsettled:
            ours = attempt.driver and ProcessTable.here().proves(attempt.driver.table)
            found, left = end_survivors(attempt.identity, attempt.driver if ours else None)
            if left:
                raise FenceError(
                    f"processes {left} of the driver of try {attempt.try_number} do not end",
                    remedy="look what they wait for (a dead mount?), end them, and clear the task",
                )
            remove_leftovers(attempt.identity)
            if ours and not attempt.end:
                end = f"ended by try {self._run.now.number}" if found else "found ended"
                self._log.info(
                    "The driver of try %s, %s, was %s.", attempt.try_number, attempt.driver, end
                )
                self._run.keep(replace(attempt, end=end, ended_ms=now_ms()))

    def commit(self, table: str, digest: str) -> Commit | None:
        """Return what an earlier try committed, with all its data.

        :param table: base path of the table.
        :param digest: of this try's work.
        :raises CommitStateUnknownError: if nobody can tell, or whether a commit is this try's work.
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
                "cannot be told",
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
            must_exist=record.knows(table),
        )

    def _was_fenced(self, instant: str) -> bool:
        attempts = self._run.record.attempts
        return any(instant in attempt.instants and not attempt.end for attempt in attempts)

    def close(self) -> None:
        """Settle them all: the commit that was to be made is in the table."""
        for attempt in self._run.record.unsettled:
            if attempt.end:
                table = self._open_table(attempt.table)
                pending = {one.time for one in table.snapshot().timeline.pending_writes()}
                self._retire(attempt, table, [time for time in attempt.instants if time in pending])
            self._run.settle(attempt)

    def settle(self) -> Wait | None:
        """Settle them one by one; what has to be waited for, if anything.

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

    def _settle(self, attempt: Attempt) -> Wait | None:
        table = self._open_table(attempt.table)
        for fences_left in reversed(range(_FENCES)):
            look = Look.at(table.snapshot(missing_ok=not attempt.instants), now_ms(), self._rule)
            step = judge(attempt, look, self._run.record.waiting)
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

    def _roll_back(self, attempt: Attempt, fence: Fence) -> None:
        self._log.info(
            "Nobody saw the driver of try %s end (%s), and %s has stopped beating: Hudi's lazy clean "
            "is asked to roll it back, so that the driver cannot commit it any more.",
            attempt.try_number,
            attempt.driver,
            ", ".join(fence.instants),
        )
        self._clean(attempt.table)

    def _retire(self, attempt: Attempt, table: HudiTable, ghosts: Sequence[str]) -> None:
        retired = retire_heartbeats(table, ghosts)
        tell_retired(self._log, f"Try {attempt.try_number}", retired)
