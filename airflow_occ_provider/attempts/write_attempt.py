"""One attempt of a write: run, settled by the table, audited and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.attempt import (
    NO_PLANS,
    Attempt,
    CommitLockAudit,
    audit_lease,
    audit_scope,
    new_attempt,
    planned_partitions,
)
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.driver import Admitted, Driver, DriverRun, Guard, Listener
from airflow_occ_provider.attempts.guards.early_stop import (
    EarlierWriter,
    EarlyStop,
    EarlyStopGuard,
    applied_mode,
    log_outcomes,
)
from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.guards.table_guards import TableGuards, TableViews
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.locks import LockConnection
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.own_writes import Commits, OneTable
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.rivals import Rival, find_rival, pending_rivals
from airflow_occ_provider.attempts.scope import Claim
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.standby import Standby
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.submitter import Unseen
from airflow_occ_provider.attempts.waits import DriverEvent, DriverWait
from airflow_occ_provider.errors import (
    JobError,
    MisconfigurationError,
    SubmitterUnreachableError,
    WriteConflictError,
)
from airflow_occ_provider.hudi.conflict.strategy import strategy_of
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, METASTORE_LOCK_PROVIDER
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """Runs the user's job once.

    :param path: base path of the table, as the task names it.
    :param require_commit: whether a job that writes nothing fails; if ``None``, one that writes other
        tables only.
    :param commits: how many commits the job makes.
    :param early_stop: what happens once Hudi will certainly refuse the write, or it is to give way.
    :param is_queued: whether the next try requests a lease.
    :param is_deferrable: whether no process has to watch a driver that outlives it.
    :param grants: whether the policy grants a retry after an error; ``None`` if it is unknown.
    :param on_settled: called with the outcome, and the seconds for which the driver ran.
    :param on_margin: called with the seconds until Hudi counts the driver's write as dead.
    """

    run: Journal
    table: HudiTable
    path: str
    claim: Claim
    lock: LockConnection
    spark: DriverRun
    require_commit: bool | None
    commits: Commits
    early_stop: EarlyStop
    is_queued: bool
    is_deferrable: bool
    grants: Callable[[WriteConflictError], bool | None]
    on_settled: Callable[[Outcome, float], None]
    on_margin: Callable[[float], None]
    log: Any

    def commit(
        self,
        job: SparkJob,
        digest: str,
        preparation: Preparation,
        admitted: Admitted,
        standby: Standby | None = None,
    ) -> Commit | None:
        """Run the job, and return what it committed, if anything.

        :param standby: the driver that may have been started before the lease was granted.
        :raises OccError: if the attempt failed, or its commit is not safe.
        :raises WaitNeeded: if the driver runs, and no process has to watch it.
        """
        self.log.info("Early conflict detection is %s.", preparation.early_detection)
        self.run.begin(digest, preparation.before)
        count = CommitLockAudit(self.lock, preparation.options, self.table).count()
        token = preparation.signature.order_token
        record = replace(new_attempt(self.run, self.path), order_token=token, lock_count=count)
        admitted.refuse_if_lost()
        leased = replace(job, lease_ttl_s=admitted.lease_ttl_s)
        waiting = standby.offered(leased, preparation.options) if standby else None
        if waiting:
            return self._outcome(waiting, preparation, admitted, record)
        with self.spark.prepared(leased, preparation.options) as submission:
            return self._outcome(self.spark.driver(submission), preparation, admitted, record)

    def resumed(
        self,
        begun: AttemptRecord,
        event: DriverEvent,
        preparation: Preparation,
        admitted: Admitted,
    ) -> Commit | None:
        """Continue an attempt of an earlier process; return what it committed.

        :param event: of the process that has watched its driver.
        :raises OccError: if the attempt failed, or its commit is not safe.
        :raises SubmitterUnreachableError: if that process gave the driver up, and it is still unseen.
        :raises WaitNeeded: if the driver runs, and no process has to watch it.
        """
        if begun.driver is None:
            raise AssertionError("the attempt has no driver")
        signature = replace(
            preparation.signature, order_token=begun.order_token, try_number=begun.try_number
        )
        driver = self.spark.running(begun.driver, event)
        if event.unseen and isinstance(driver.submitter.poll(begun.driver), Unseen):
            raise SubmitterUnreachableError(f"{begun.driver} is unseen: {event.unseen}")
        driver.planned = event.planned
        driver.doomed = event.doomed
        return self._outcome(driver, replace(preparation, signature=signature), admitted, begun)

    def _outcome(
        self, driver: Driver, preparation: Preparation, admitted: Admitted, record: AttemptRecord
    ) -> Commit | None:
        """Watch the driver, and return what it committed, if that is sound."""
        one_table = OneTable(self.path)
        audit = CommitLockAudit(self.lock, preparation.options, self.table)
        release = _EarlyRelease(admitted, audit)
        settlement = self._run(driver, preparation, admitted, record, one_table, release=release)
        if self.run.record.has_ended:
            self.spark.forget(*self.run.record.identities)
        if settlement.loss is None:
            one_table.refuse(committed=None if settlement.unreadable else settlement.commit is not None)
        commit = self.judge(settlement, admitted, HeartbeatRule.of(preparation.options), driver.planned)
        if commit:
            after = release.lock_count if release.is_done else audit.count()
            audit.refuse_unlocked(commit, record.lock_count, after)
            audit_scope(commit, admitted, self.log)
            audit_lease(commit, admitted)
        return commit

    def _run(
        self,
        driver: Driver,
        preparation: Preparation,
        admitted: Admitted,
        record: AttemptRecord,
        one_table: OneTable,
        *,
        release: _EarlyRelease,
    ) -> Settlement:
        """Run the driver under its guards, and return its settlement by the table."""
        options = preparation.options
        attempt = self.attempt(driver, preparation.signature, options, record)
        log = attempt.recorder.log
        rule = HeartbeatRule.of(options)
        admitted.extend(driver)
        outlives = driver.submitter.outlives_task
        alarm = HeartbeatAlarm(log, rule, self.log, self.on_margin, log_follows=not outlives)
        has_one_name = _locks_one_name(options)
        may_wait = self.is_deferrable and outlives and not (has_one_name or admitted.stop)
        mode = applied_mode(self.early_stop, options, self.log)
        strategy = strategy_of(options)
        may_retry = mode is not EarlyStop.OFF and self._may_retry()
        earlier = EarlierWriter(admitted, rule, strategy, may_retry)
        early = EarlyStopGuard(log, EarlyStop.OFF if may_wait else mode, strategy, self.log, earlier)
        looking = TableGuards(TableViews(self.table), log, [alarm, early], self.log)
        guards: list[Guard] = [admitted, looking, *([one_table] if has_one_name else [])]
        wait = partial(
            DriverWait,
            rule=rule,
            started_ms=record.started_ms,
            is_fenced=admitted.is_fenced,
            early_stop=mode,
            strategy=strategy,
        )
        listeners: list[Listener] = [one_table.on_entry] if has_one_name else []
        if admitted.is_fenced:
            listeners.append(partial(release.on_entry, log))
        with looking:  # not while the attempt is settled: that removes the heartbeat
            attempt.watch(guards, listeners, wait if may_wait else None)
        if driver.stop is None and log.end is None:
            driver.stop = admitted.stop  # the lease's keeper ends a driver by itself
        settlement = attempt.settle(is_judged=True)
        log_outcomes(self.log, (early.choice, early.doomed or driver.doomed), settlement.outcome)
        return settlement

    def attempt(
        self,
        driver: Driver,
        signature: Signature,
        options: Mapping[str, str],
        record: AttemptRecord | None = None,
    ) -> Attempt:
        """Return an attempt at the driver's work.

        :param record: what is known of it so far.
        """
        return Attempt(
            self.run,
            self.table,
            signature,
            driver,
            log=self.log,
            explain=partial(self._explain, options, driver.planned),
            on_settled=self.on_settled,
            rule=HeartbeatRule.of(options),
            commits=self.commits,
            path=self.path,
            record=record,
        )

    def _may_retry(self) -> bool:
        """Whether another try follows if this one gives way."""
        granted = self.grants(WriteConflictError("", outcome=Outcome.YIELDED))
        return self.run.now.number <= self.run.now.max_tries if granted is None else granted

    def _explain(
        self,
        options: Mapping[str, str],
        plans: Mapping[str, Sequence[str]],
        settlement: Settlement,
        seconds: float,
        is_judged: bool,
    ) -> Settlement:
        """Add the rival and what follows; that is unknown for a try that is being ended."""
        rival = find_rival(self.table, settlement.instant, settlement.rival)
        planned = planned_partitions(self.table, settlement.instant, plans)
        follows = self._next_try(options, settlement, rival, planned) if is_judged else ""
        return rival.explained(settlement, seconds, follows)

    def _next_try(
        self,
        options: Mapping[str, str],
        settlement: Settlement,
        rival: Rival,
        planned: tuple[str, ...],
    ) -> str:
        """Return what follows a conflict in a few words; empty if it is unknown."""
        error = settlement.error()
        granted = self.grants(error) if isinstance(error, WriteConflictError) else None
        if granted is None:
            return ""
        if not granted:
            return "none"
        pending = self._pending(settlement, planned, HeartbeatRule.of(options))
        if pending:
            several = len(pending) > 1
            return f"once {f'{len(pending)} rivals have' if several else f'{pending[0]} has'} ended"
        if not self.is_queued:
            return "not queued"
        wanted = self.claim.scope(options, planned).partitions
        if wanted is None:
            return "queued for the whole table"
        return f"queued on {'those' if wanted == rival.partitions else len(wanted)} partitions"

    def _pending(
        self, settlement: Settlement, planned: tuple[str, ...], rule: HeartbeatRule
    ) -> tuple[str, ...]:
        """Return the rivals that the next try waits for."""
        touched = planned or self.claim.partitions or ()
        own_times = self.run.record.instants_in(self.path)
        return pending_rivals(self.table, settlement, touched, own_times, rule)

    def judge(
        self,
        settlement: Settlement,
        admitted: Admitted,
        rule: HeartbeatRule,
        plans: Mapping[str, Sequence[str]] = NO_PLANS,
    ) -> Commit | None:
        """Return the attempt's commit, if there is one and it is sound.

        :param plans: the partitions of the driver's writes, as known while it ran.
        """
        if settlement.outcome is Outcome.KILLED:
            admitted.refuse_if_lost()
        error = settlement.error()
        if isinstance(error, WriteConflictError):
            planned = planned_partitions(self.table, settlement.instant, plans)
            gave_way = error.outcome is Outcome.YIELDED and admitted.is_shared
            queue_again = self.run.give_way if gave_way else self.run.escalate
            queue_again(planned, self._pending(settlement, planned, rule))
        if error:
            raise error
        commit = settlement.commit or settlement.earlier
        if commit is None:
            self._refuse_no_commit(settlement)
        return commit

    def _refuse_no_commit(self, settlement: Settlement) -> None:
        """Refuse a job that ended well without a commit to its table, unless that was allowed."""
        elsewhere = [f"{time} in {table}" for time, table in settlement.own_writes.elsewhere]
        if elsewhere and self.require_commit is not False:
            raise MisconfigurationError(
                f"the job wrote {', '.join(elsewhere)}, and nothing in its table {self.path}",
                outcome=settlement.outcome,
                remedy="correct table=, or the job; or allow a job that writes other tables only, with "
                "require_commit=False",
            )
        if self.require_commit:
            raise JobError(
                "the job ended well but wrote nothing",
                outcome=settlement.outcome,
                remedy="correct the job, or allow it with require_commit=False",
            )


@dataclass(slots=True)
class _EarlyRelease:
    """Releases the lease once the job has ended well, before Spark's shutdown and the settlement.

    The driver's guard refuses any commit after that, so the next writer need not wait for its process.

    :param lock_count: how often Hudi's lock was taken until then; the next writer takes it as well.
    """

    admitted: Admitted
    audit: CommitLockAudit
    is_done: bool = field(default=False, init=False)
    lock_count: int | None = field(default=None, init=False)

    def on_entry(self, log: DriverLog, _: Entry) -> None:
        if log.has_finished and not self.is_done:
            self.lock_count = self.audit.count()
            self.is_done = True
            self.admitted.release()


def _locks_one_name(options: Mapping[str, str]) -> bool:
    """Whether Hudi's lock has one name for all tables that a driver writes."""
    return options.get(LOCK_PROVIDER) == METASTORE_LOCK_PROVIDER
