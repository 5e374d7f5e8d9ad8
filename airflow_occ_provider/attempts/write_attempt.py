"""One attempt of a write: run, settled by the table, audited and judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.driver_run import DriverRun
from airflow_occ_provider.attempts.follower import Follower
from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.guards.one_table import OneTable
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.lease_audit import (
    CommitLockAudit,
    audit_lease,
    audit_scope,
    planned_partitions,
)
from airflow_occ_provider.attempts.lock_settings import LockSettings
from airflow_occ_provider.attempts.next_try import NextTry
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.rival import find_rival
from airflow_occ_provider.attempts.rivals import pending_rivals
from airflow_occ_provider.attempts.settle import Settlement, settle
from airflow_occ_provider.attempts.submission import SparkJob, prepared
from airflow_occ_provider.attempts.told_attempt import ToldAttempt
from airflow_occ_provider.errors import JobError, WriteConflictError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, METASTORE_LOCK_PROVIDER
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """Runs the user's job once.

    :param run: the task run.
    :param table: the table.
    :param path: its base path, as the task names it.
    :param claim: what the task said of its write.
    :param lock: the lock connection.
    :param driver: runs the job.
    :param require_commit: whether a job that writes nothing fails.
    :param on_settled: called with the outcome, and the seconds that the driver ran.
    :param on_margin: called with the seconds until Hudi counts the driver's write as dead.
    :param log: the task's log.
    """

    run: Journal
    table: HudiTable
    path: str
    claim: Claim
    lock: LockSettings
    driver: DriverRun
    require_commit: bool
    on_settled: Callable[[Outcome, float], None]
    on_margin: Callable[[float], None]
    log: Any

    def commit(
        self,
        job: SparkJob,
        digest: str,
        preparation: Preparation,
        admitted: Admitted,
        next_try: NextTry,
    ) -> Commit | None:
        """Run the job, and return what it committed, if anything.

        :param job: the user's.
        :param digest: of the task's rendered work.
        :param preparation: what the driver is given.
        :param admitted: the lease.
        :param next_try: describes what follows a conflict.
        :raises OccError: if the attempt failed, or its commit is not safe.
        """
        self.log.info("Early conflict detection is %s.", preparation.early_detection)
        self.run.begin(digest, preparation.signature.latest_instant)
        recorded = ToldAttempt(self.run, self.path, self.log)
        audit = CommitLockAudit(self.lock, preparation.options, self.table)
        alarm, one_table = self._alarm(preparation, recorded), OneTable(self.path)
        follower = recorded.follower
        if preparation.options.get(LOCK_PROVIDER) == METASTORE_LOCK_PROVIDER:
            on_line = partial(self._end_at_second_table, one_table, follower)
            follower = replace(follower, on_line=on_line)
        self.driver.forget()
        admitted.refuse_if_lost()
        try:
            with prepared(job, preparation.options, preparation.site) as submission, alarm:
                self.driver.submit(submission, follower)
        except BaseException:  # a task time-out, an interrupt: settled, but not judged
            if self.driver.ended:
                self.settle(preparation, recorded, one_table.stop or alarm.stop)
            raise
        settlement = self.settle(preparation, recorded, one_table.stop or alarm.stop, next_try)
        if settlement.loss is None:
            one_table.refuse(committed=None if settlement.unreadable else settlement.commit is not None)
        commit = self.judge(settlement, admitted, HeartbeatRule.of(preparation.options))
        if commit:
            audit.refuse_unlocked(commit)
            audit_scope(commit, admitted, self.log)
            audit_lease(commit, admitted)
        return commit

    def settle(
        self,
        preparation: Preparation,
        recorded: ToldAttempt,
        stop: Stop | None,
        next_try: NextTry | None = None,
    ) -> Settlement:
        """Ask the table what the ended driver came to, and record it.

        :param stop: why a guard ended the driver, if one did.
        """
        exit_code = self.driver.exit_code or 0
        recorded.ended(exit_code, log_read=self.driver.log_read)
        settlement = settle(self.table, preparation.signature, recorded.log, exit_code, stop=stop)
        if settlement.error():
            rival = find_rival(self.table, settlement.instant, settlement.rival)
            follows = next_try.described(settlement, rival) if next_try else ""
            settlement = rival.explained(settlement, recorded.seconds, follows)
        recorded.settled(settlement)
        self.on_settled(settlement.outcome, recorded.seconds)
        return settlement

    def judge(self, settlement: Settlement, admitted: Admitted, rule: HeartbeatRule) -> Commit | None:
        """Return the attempt's commit, if there is one and nothing is wrong with it."""
        if settlement.outcome is Outcome.KILLED:
            admitted.refuse_if_lost()
        error = settlement.error()
        if isinstance(error, WriteConflictError):
            planned = planned_partitions(self.table, settlement.instant)
            touched = planned or self.claim.partitions or ()
            own = self.run.record.instants_in(self.path)
            self.run.escalate(planned, pending_rivals(self.table, settlement, touched, own, rule))
        if error:
            raise error
        if self.require_commit and settlement.outcome is Outcome.NOTHING_WRITTEN:
            raise JobError(
                "the job ended well but wrote nothing",
                outcome=settlement.outcome,
                remedy="correct the job, or allow it with require_commit=False",
            )
        return settlement.commit

    def _end_at_second_table(self, one_table: OneTable, follower: Follower, line: str) -> None:
        follower.on_line(line)
        if one_table.feed(line):
            self.driver.end()

    def _alarm(self, preparation: Preparation, recorded: ToldAttempt) -> HeartbeatAlarm:
        return HeartbeatAlarm(
            self.table,
            recorded.log,
            HeartbeatRule.of(preparation.options),
            self.driver.end,
            logger=self.log,
            on_margin=self.on_margin,
        )
