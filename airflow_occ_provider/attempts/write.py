"""One try of a task, from its earlier tries to its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from airflow_occ_provider.attempts.attempt import audit_task_run
from airflow_occ_provider.attempts.cleaning import run_clean
from airflow_occ_provider.attempts.commit import Commit, facts_of, run_commits
from airflow_occ_provider.attempts.driver import Admitted, DriverRun
from airflow_occ_provider.attempts.earlier_tries import (
    EarlierTries,
    begun_attempt,
    end_earlier_drivers,
    refuse_deaths,
)
from airflow_occ_provider.attempts.identity import run_part
from airflow_occ_provider.attempts.jobs import MainClass, spark_job, work_digest
from airflow_occ_provider.attempts.journal import Journal, known_state
from airflow_occ_provider.attempts.learned_scope import learn, with_hint
from airflow_occ_provider.attempts.locks import LockConnection
from airflow_occ_provider.attempts.outcome import LogReading
from airflow_occ_provider.attempts.preparation import (
    Preparation,
    Protection,
    prepare,
    refuse_pending_restore,
)
from airflow_occ_provider.attempts.record import NOTHING_BEFORE, AttemptRecord
from airflow_occ_provider.attempts.rivals import Preflight, still_pending
from airflow_occ_provider.attempts.scope import Claim, known_options
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.standby import Standby
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.task_run import TaskRun
from airflow_occ_provider.attempts.try_lease import TryLease
from airflow_occ_provider.attempts.waits import (
    UNWATCHED,
    DriverEvent,
    InstantsWait,
    wait_for_instants,
    wait_for_survivor,
)
from airflow_occ_provider.attempts.write_attempt import WriteAttempt
from airflow_occ_provider.attempts.write_spec import WriteSpec
from airflow_occ_provider.driver.contract import LIMIT_S
from airflow_occ_provider.errors import FenceError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.secrets import all_secrets, spark_secrets
from airflow_occ_provider.storage.address import canonical_table, is_one_table
from airflow_occ_provider.storage.table import PROPERTIES_AGE_S, HudiTable

_ISOLATION = "_airflow_isolation"
"""By this name people see the isolation, which a job may imply."""


class ProtectedTry:
    """One try of a protected task: its journal, table, lease and drivers' options.

    :param spec: the task's work.
    :param task_run: the scheduler's view of the try.
    :param spark: runs its drivers.
    :param log: of the task.
    """

    def __init__(self, spec: WriteSpec, task_run: TaskRun, spark: DriverRun, log: Any) -> None:
        self.spec = spec
        self.task_run = task_run
        self.spark = spark
        self.log = log

    def look_up(self) -> None:
        """Ask the scheduler; meanwhile threads find Spark, and import the lock's client."""
        _ = self._site, self.lock, self.journal

    @cached_property
    def journal(self) -> Journal:
        """The journal of the task run."""
        return self.task_run.journal()

    def recover(self) -> None:
        """Revoke the drivers of a lost record, and record them as to be settled."""
        if self.journal.record.was_lost:
            run = run_part(self.journal.record.identity)
            drivers = self.spark.revoke_unrecorded(run, self.lease_ttl_s)
            self.journal.recover(self.spec.table, drivers)

    @property
    def lease_ttl_s(self) -> float:
        """For how long each extension of a lease of the task lasts."""
        return self.lock.terms().claim_ttl_ms / 1000

    @cached_property
    def table(self) -> HudiTable:
        """The task's table."""
        return self.task_run.open_table(self.spec.table)

    def open(self, table: str) -> HudiTable:
        """Open a table of an earlier try, usually the same."""
        return self.table if is_one_table(table, self.spec.table) else self.task_run.open_table(table)

    @cached_property
    def lock(self) -> LockConnection:
        """The lock connection; one try requests it from the scheduler once."""
        return self.task_run.lock()

    @property
    def claim(self) -> Claim:
        """The claim of the task before it writes, with what its run knows of it."""
        return with_hint(self._declared, self.journal.record)

    @cached_property
    def _declared(self) -> Claim:
        return self.spec.claim(self.table, self.log)

    @cached_property
    def work_digest(self) -> str:
        """The digest of the task run's work."""
        table = canonical_table(self.spec.table)
        partitions = self.spec.partitions
        scope = None if partitions is None else frozenset(partitions)
        return work_digest((*self.spec.job.work(), table, scope), self.task_run.folders())

    @cached_property
    def job(self) -> SparkJob:
        """The PySpark job by which the task's job runs."""
        job = spark_job(self.spec.job, self.table, self.spec.conf, self.spark.deploy_mode)
        return replace(job, may_read=job.may_read or self._declared.is_serializable)

    @cached_property
    def _site(self) -> Callable[[], Site]:
        """Returns the configuration of the drivers' site."""
        return self.spark.read_site()

    def prepare(self, order_token: str = "") -> Preparation:
        """Decide a driver's options, and have the scheduler show them.

        :param order_token: of the lease; the holder before may have made the table anew.
        """
        spec = self.spec
        max_age_s = 0 if order_token else PROPERTIES_AGE_S
        snapshot = self.table.snapshot(missing_ok=True, max_age_s=max_age_s)
        self.claim.refuse_impossible(snapshot.config)
        protection = Protection(self.lock, spec.policy, spec.hudi_options)
        identity = self.journal.record.identity
        signs = spec.job.signs
        signature = self.task_run.sign(identity, snapshot, order_token, is_written=signs)
        preparation = prepare(protection, self.job, self._site(), signature, snapshot)
        spark = {**dict(preparation.site.spark.options), **spec.conf}
        self.task_run.hide([*all_secrets(preparation.options), *spark_secrets(spark)])
        self.task_run.show({**preparation.shown, _ISOLATION: str(self.claim.isolation)})
        return preparation

    def known_options(self, preparation: Preparation) -> dict[str, str]:
        """Return the known options of the job; refuse what cannot run before it is queued."""
        refuse_pending_restore(preparation.snapshot)
        self.spark.refuse(self.job, preparation.site)
        self.lock.validate()
        spark = {**dict(preparation.site.spark.options), **self.spec.conf}
        return known_options(preparation.options, spark, preparation.snapshot.config)

    @cached_property
    def lease(self) -> TryLease:
        """The lease under which the drivers run."""
        measures = self.task_run.measures
        return TryLease(
            run=self.journal,
            lock=self.lock,
            owner=self.task_run.owner,
            spark=self.spark,
            timeout=self.spec.wait_timeout,
            on_granted=measures.queue_wait,
            on_released=measures.lease_age,
            log=self.log,
            absence_ms=self.task_run.absence_ms(self.journal.now.number),
        )

    def admitted(
        self,
        options: Mapping[str, str],
        begun: AttemptRecord | None = None,
        *,
        event: DriverEvent = UNWATCHED,
        standby: Standby | None = None,
    ) -> AbstractContextManager[Admitted]:
        """Hold the lease that the task requests, for the time of a block.

        :param begun: the attempt that runs under the lease already, if there is one.
        :param event: of the process that has watched its driver.
        :param standby: the driver that waits with the task once it is the next one.
        """
        is_queued = self.spec.is_queued
        if is_queued and begun is None:
            signed = partial(self.task_run.sign, "", order_token="")
            learn(self.claim, options, self.journal, self.table, sign=signed, log=self.log)
        return self.lease.admitted(
            self.claim,
            options,
            is_queued=is_queued,
            begun=begun,
            event=event,
            standby=standby,
        )

    def standby(self, preparation: Preparation) -> AbstractContextManager[Standby | None]:
        """Return the driver that may start before its lease; ``None`` if none may."""
        if not (self.spec.policy.standby and self.spec.is_queued):
            return nullcontext()
        is_main = isinstance(self.spec.job, MainClass)  # such as Hudi Streamer's, with its own context
        if self.spark.is_remote or is_main:
            reason = "a main class makes its own context" if is_main else "the driver runs elsewhere"
            self.log.info("standby has no effect: %s.", reason)
            return nullcontext()
        self.journal.store_identity()
        limit_s = LIMIT_S + self.spec.wait_timeout.total_seconds()
        on_over = self.task_run.measures.standby
        return Standby(self.spark, self.job, preparation.options, limit_s, on_over, self.log)

    def alone_if_unlocked(
        self, options: Mapping[str, str], table: str
    ) -> AbstractContextManager[Admitted]:
        """Hold the whole table if Hudi's lock excludes no other process."""
        return self.lease.alone_if_unlocked(canonical_table(table), options)

    def wait_for_rivals(self, options: Mapping[str, str]) -> None:
        """Wait for rivals outside the queue, of a lost attempt or of a preflight.

        :raises WaitNeeded: while they are pending.
        """
        rule = HeartbeatRule.of(options)
        rivals = self.journal.record.rivals
        pending = still_pending(self.table, rivals, rule) if rivals else ()
        if pending:
            names = ", ".join(pending)
            self.wait(InstantsWait(pending, rule), f"{names}, to which the last attempt lost")
        if rivals:
            self.journal.forget_rivals()
        self.preflight(rule).go_on()

    def preflight(self, rule: HeartbeatRule) -> Preflight:
        """Return the preflight of the try."""
        spec = self.spec
        return Preflight(
            self.journal, self.table, spec.table, rule, spec.policy.preflight_timeout, self.log
        )

    def wait(self, wait: InstantsWait, reason: str) -> None:
        """Wait for instants of other writers.

        :raises AdmissionTimeoutError: if that took longer than the task's ``wait_timeout``.
        :raises WaitNeeded: else.
        """
        timeout = self.spec.wait_timeout
        wait_for_instants(self.journal, wait, reason, timeout=timeout, log=self.log)

    def refuse_deaths(self) -> None:
        """Refuse another driver if too many tries died together with their worker.

        :raises WorkerLostError: then.
        """
        refuse_deaths(self.journal, self.spec.deaths)

    def run_clean(
        self, preparation: Preparation, table: str, admitted: Admitted
    ) -> tuple[int, LogReading]:
        """Run Hudi's clean of a table; return the exit code and the log's reading."""
        self.journal.store_identity()
        return run_clean(self.spark, self.job, preparation, table, admitted)


@dataclass(frozen=True, slots=True)
class Write:
    """One try of a task's write, which may be repeated after each wait.

    :param run: the try.
    :param event: of the process that has watched the driver since the last wait.
    """

    run: ProtectedTry
    event: DriverEvent = UNWATCHED

    def result(self) -> dict[str, Any]:
        """Settle the earlier tries, run the job once, and return the facts by the table.

        :raises OccError: if the attempt failed, or its commit is not safe.
        :raises WaitNeeded: if the try has to wait; then it is repeated.
        """
        started = time.monotonic()
        run = self.run
        run.look_up()
        with known_state(run.journal):
            begun = begun_attempt(
                run.journal, run.spark.submitter, run.spec.table, run.work_digest, run.log
            )
        return self._audited(self._continue(begun) if begun else self._commit(), started)

    def _commit(self) -> Commit | None:
        """Return what the task run commits, by an earlier try or by a new attempt."""
        run = self.run
        with known_state(run.journal):
            preparation = run.prepare()
            commit = self._settle_earlier(preparation)
        if commit:
            return commit
        if run.journal.record.attempts:  # whose settlement may have taken minutes
            preparation = run.prepare()
        run.refuse_deaths()
        options = run.known_options(preparation)
        run.wait_for_rivals(options)
        with run.standby(preparation) as standby, run.admitted(options, standby=standby) as admitted:
            preparation = run.prepare(admitted.order_token)
            preflight = run.preflight(HeartbeatRule.of(options))
            preflight.begin(run.claim, options, preparation.snapshot)
            return self.attempt(preparation, admitted, standby)

    def _audited(self, commit: Commit | None, started: float) -> dict[str, Any]:
        """Publish and audit what the run has committed, and record its success."""
        run = self.run
        spec = run.spec
        record = run.journal.record
        snapshot = run.table.last_snapshot()  # by which the attempt was settled
        recorded = () if spec.job.signs else record.instants_in(spec.table)
        commits = run_commits(snapshot, record.identities, record.since or NOTHING_BEFORE, recorded)
        if commit and commit.instant.time not in [other.instant.time for other in commits]:  # archived
            commits = [commit, *commits]
        result = {**facts_of(commits), "seconds": round(time.monotonic() - started, 1)}
        run.task_run.publish(commit, result)
        audit_task_run(record, snapshot, run.log, commits, spec.commits)
        run.journal.succeed()
        return result

    def _settle_earlier(self, preparation: Preparation) -> Commit | None:
        """Return what an earlier try committed, once none of them can commit any more."""
        run = self.run
        spec = run.spec
        journal = run.journal
        work = run.work_digest
        rule = HeartbeatRule.of(preparation.options)
        tries = EarlierTries(
            journal,
            run.open,
            rule,
            clean=partial(self._roll_back, preparation),
            log=run.log,
            signed=spec.job.signs,
            commits=spec.commits,
            signature=preparation.signature,
            due_ms=run.task_run.due_ms,
        )
        run.recover()
        end_earlier_drivers(journal, run.spark.submitter, run.log)
        commit = tries.commit(spec.table, work)
        if commit is None and journal.record.unsettled:
            wait = tries.settle()
            commit = tries.commit(spec.table, work)
            if wait and commit is None:
                wait_for_survivor(journal, wait, rule, spec.wait_timeout)
        if commit:
            tries.close()
            run.spark.forget(*journal.record.identities)
        elif journal.record.digest not in ("", work):
            run.log.info("The task's application, arguments, table or scope are others than before.")
            journal.abandon(work)
        return commit

    def _roll_back(self, preparation: Preparation, table: str) -> None:
        """Have Hudi roll back a table's failed writes, alone if its lock excludes no other process."""
        run = self.run
        if not is_one_table(table, run.spec.table):  # an earlier try's, under that table's own lock
            lock = run.lock.options(table)
            preparation = replace(preparation, options={**preparation.options, **lock})
        with run.alone_if_unlocked(preparation.options, table) as admitted:
            exit_code, reading = run.run_clean(preparation, table, admitted)
            admitted.refuse_if_lost()
        if exit_code:
            raise FenceError(
                f"the lazy clean of {table} failed (exit code {exit_code}): {' '.join(reading.lines)}",
                remedy="correct what the task's log shows; nothing was run, so nothing is lost",
            )

    def attempt(
        self, preparation: Preparation, admitted: Admitted, standby: Standby | None = None
    ) -> Commit | None:
        """Run the job once under its lease; return what it committed, if anything.

        :param standby: the driver that may have been started before.
        """
        run = self.run
        refuse_pending_restore(preparation.snapshot)
        return self.write_attempt().commit(run.job, run.work_digest, preparation, admitted, standby)

    def _continue(self, begun: AttemptRecord) -> Commit | None:
        """Continue the attempt that an earlier process began; return what it committed."""
        run = self.run
        event = self.event
        preparation = run.prepare(begun.order_token)
        with run.admitted(preparation.options, begun, event=event) as admitted:
            return self.write_attempt().resumed(begun, event, preparation, admitted)

    def write_attempt(self) -> WriteAttempt:
        """Return the attempt at the task's work."""
        run = self.run
        spec = run.spec
        task_run = run.task_run
        return WriteAttempt(
            run=run.journal,
            table=run.table,
            path=spec.table,
            claim=run.claim,
            lock=run.lock,
            spark=run.spark,
            require_commit=spec.require_commit,
            commits=spec.commits,
            early_stop=spec.policy.early_stop,
            is_queued=spec.is_queued,
            is_deferrable=spec.is_deferrable,
            grants=task_run.grants,
            on_settled=task_run.measures.attempt,
            on_margin=task_run.measures.margin,
            log=run.log,
        )
