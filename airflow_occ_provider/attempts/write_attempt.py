"""One attempt of a write: run, settled by the table, audited and judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.attempt import Attempt
from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.driver_run import DriverRun
from airflow_occ_provider.attempts.guards.guard import Guard
from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.guards.lease import LeaseGuard
from airflow_occ_provider.attempts.guards.one_table import OneTable
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.lease_audit import (
    CommitLockAudit,
    audit_lease,
    audit_scope,
    planned_partitions,
)
from airflow_occ_provider.attempts.lock_settings import LockSettings
from airflow_occ_provider.attempts.next_try import NextTry
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.rival import find_rival
from airflow_occ_provider.attempts.rivals import pending_rivals
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.submission import SparkJob, Submission, prepared
from airflow_occ_provider.attempts.submitter import Submitter
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
    :param claim: what the task declared about its write.
    :param lock: the lock connection.
    :param driver: runs the job.
    :param require_commit: whether a job that writes nothing fails.
    :param on_settled: called with the outcome, and the seconds for which the driver ran.
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
        :param preparation: what the driver receives.
        :param admitted: the lease.
        :param next_try: describes what follows a conflict.
        :raises OccError: if the attempt failed, or its commit is not safe.
        """
        self.log.info("Early conflict detection is %s.", preparation.early_detection)
        self.run.begin(digest, preparation.signature.latest_instant)
        audit = CommitLockAudit(self.lock, preparation.options, self.table)
        one_table = OneTable(self.path)
        admitted.refuse_if_lost()
        with prepared(job, preparation.options) as submission:
            settlement = self._run(submission, preparation, admitted, one_table, next_try)
        if settlement.loss is None:
            one_table.refuse(committed=None if settlement.unreadable else settlement.commit is not None)
        commit = self.judge(settlement, admitted, HeartbeatRule.of(preparation.options))
        if commit:
            audit.refuse_unlocked(commit)
            audit_scope(commit, admitted, self.log)
            audit_lease(commit, admitted)
        return commit

    def _run(
        self,
        submission: Submission,
        preparation: Preparation,
        admitted: Admitted,
        one_table: OneTable,
        next_try: NextTry,
    ) -> Settlement:
        """Run the driver under its guards, and return its settlement by the table."""
        has_one_name = preparation.options.get(LOCK_PROVIDER) == METASTORE_LOCK_PROVIDER
        submitter = self.driver.submitter(submission)
        attempt = self.attempt(submitter, preparation.signature, next_try, needs_live_log=has_one_name)
        alarm = HeartbeatAlarm(
            self.table,
            attempt.recorder.log,
            HeartbeatRule.of(preparation.options),
            logger=self.log,
            on_margin=self.on_margin,
        )
        guards: list[Guard] = [LeaseGuard(admitted), alarm, *([one_table] if has_one_name else [])]
        self.driver.follow(attempt.driver)
        with alarm:  # not while the attempt is settled: that removes the heartbeat
            attempt.watch(guards, self.driver.echo)
        return attempt.settle(is_judged=True)

    def attempt(
        self,
        submitter: Submitter,
        signature: Signature,
        next_try: NextTry,
        *,
        needs_live_log: bool = False,
    ) -> Attempt:
        """Return an attempt whose driver is not started yet."""
        return Attempt(
            self.run,
            self.table,
            signature,
            submitter,
            log=self.log,
            explain=partial(self.explain, next_try),
            on_settled=self.on_settled,
            needs_live_log=needs_live_log,
            path=self.path,
        )

    def explain(
        self, next_try: NextTry, settlement: Settlement, seconds: float, is_judged: bool
    ) -> Settlement:
        """Return a failed attempt's settlement with its rival and what follows.

        :param is_judged: whether the try goes on; what follows a try that is being ended is unknown.
        """
        rival = find_rival(self.table, settlement.instant, settlement.rival)
        follows = next_try.described(settlement, rival) if is_judged else ""
        return rival.explained(settlement, seconds, follows)

    def judge(self, settlement: Settlement, admitted: Admitted, rule: HeartbeatRule) -> Commit | None:
        """Return the attempt's commit, if there is one and it is sound."""
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
