"""One try of a table service: its limits, its attempt, and the table's verdict."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.attempt_recorder import AttemptRecorder, new_attempt
from airflow_occ_provider.attempts.claim import prefers_writers
from airflow_occ_provider.attempts.commit import table_before
from airflow_occ_provider.attempts.driver import DriverRun
from airflow_occ_provider.attempts.earlier_tries import end_earlier_drivers
from airflow_occ_provider.attempts.journal import Journal, known_state
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.protected_try import ProtectedTry
from airflow_occ_provider.attempts.rivals import find_rival, pending_rivals
from airflow_occ_provider.attempts.service_plans import ServicePlans, ServiceTask
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.work import work_digest
from airflow_occ_provider.errors import ConfigurationError, WriteConflictError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Plan, Service, ServiceOp
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.snapshot import Snapshot

PARTITION_OPTIONS = "hoodie.clustering.plan.strategy.partition."
"""How the names of Hudi's options begin that select the partitions of a clustering plan."""
_PATTERN = f"{PARTITION_OPTIONS}regex.pattern"
_CHECKED_LAYOUT = 8


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of a table service; a compaction touches what Hudi's plan names.

    :param declared: the partitions that the task names, if it does.
    """

    service: Service
    declared: Sequence[str] | None
    log: Any

    def refuse_table(self, snapshot: Snapshot, options: Mapping[str, str]) -> None:
        """Refuse a table that the service does not support.

        :raises ConfigurationError: if a copy-on-write table is to be compacted.
        """
        config = snapshot.config
        if self.service is Service.COMPACTION and not config.merge_on_read:
            raise ConfigurationError(
                "table",
                f"{snapshot.path} is copy-on-write",
                remedy="only merge-on-read tables are compacted",
            )
        is_clustering = self.service is Service.CLUSTERING
        if is_clustering and prefers_writers(options) and config.version < _CHECKED_LAYOUT:
            self.log.warning(
                "Below table version 8, Hudi 1.1 and later take a clustering's own plan for a rival's, "
                "so that it never commits: use another conflict_resolution."
            )

    def restrict(self, preparation: Preparation, admitted: Admitted) -> Preparation:
        """Return a preparation with which the driver plans no more than the task holds."""
        partitions = self._held(admitted)
        if not partitions:
            return preparation
        # A selection, such as one in the site's hudi-defaults.conf, would override the pattern.
        options = preparation.options.items()
        others = {key: value for key, value in options if not key.startswith(PARTITION_OPTIONS)}
        restricted = {**others, _PATTERN: below(partitions)}
        return replace(preparation, options=restricted, without=(PARTITION_OPTIONS,))

    def is_outside(self, plan: Plan, admitted: Admitted) -> bool:
        """Whether a plan touches more than the task may."""
        partitions = self._held(admitted)
        inside = below(partitions)
        return bool(partitions) and not all(re.fullmatch(inside, path) for path in plan.partitions)

    def _held(self, admitted: Admitted) -> Sequence[str]:
        """Return the partitions to cluster, empty for all; a shared lease names none."""
        if self.service is Service.COMPACTION:
            return ()
        return self.declared or (admitted.scope.partitions if admitted.scope else None) or ()


def below(partitions: Sequence[str]) -> str:
    """Return a pattern, for Java and Python, of some partitions and all below them."""
    paths = "|".join(re.escape(path.strip("/")) for path in partitions)
    return f"(?:{paths})(?:/.*)?"


@dataclass(frozen=True, slots=True)
class ServiceAttempt:
    """Runs a table service once.

    :param on_settled: called with the outcome, and the seconds for which the driver ran.
    """

    plans: ServicePlans
    limits: ServiceLimits
    spark: DriverRun
    on_settled: Callable[[Outcome, float], None]

    def facts(self, job: SparkJob, preparation: Preparation, admitted: Admitted) -> dict[str, Any]:
        """Take the steps that are due, and return their result by the table.

        :param job: the driver's, without arguments.
        :raises OccError: if the driver failed, or left something undone.
        """
        plans = self.plans
        task = plans.task
        before = plans.table.snapshot()
        self.limits.refuse_table(before, preparation.options)
        made = plans.made(before)
        pending = plans.pending(before, made)
        outside = {plan.time for plan in pending if self.limits.is_outside(plan, admitted)}
        choice = plans.choose(before, pending, made, outside)
        work = work_digest((str(task.service), str(task.op), canonical_table(plans.path)))
        plans.run.begin(work, table_before(before))
        steps = choice.steps(task.op)
        if steps:
            plans.retire(plan for plan in pending if plan.is_ours and plan.time in choice.run)
            self._drive(job, self.limits.restrict(preparation, admitted), steps, admitted)
        else:
            plans.log.info("There is nothing to do.")
        facts = plans.facts(plans.table.snapshot(before).whole(), choice)
        plans.retire(plan for plan in pending if plan.time in facts["rolled_back"])
        return facts

    def _drive(
        self, job: SparkJob, preparation: Preparation, steps: Sequence[str], admitted: Admitted
    ) -> None:
        """Run one driver that takes the steps."""
        plans = self.plans
        arguments = (plans.path, str(plans.task.service), *steps)
        job = replace(job, arguments=arguments, lease_ttl_s=admitted.lease_ttl_s)
        record = new_attempt(plans.run, plans.path)
        recorded = AttemptRecorder(plans.run, plans.path, plans.log, record)
        with self.spark.prepared(job, preparation.options, without=preparation.without) as submission:
            driver = self.spark.driver(submission)
            admitted.extend(driver)
            try:
                driver.run([recorded.feed], recorded.started, [admitted])
            finally:
                if driver.was_refused:
                    recorded.ended(1, log_read=True)
                elif driver.ended:
                    recorded.ended(driver.exit_code or 0, log_read=driver.log_read)
        settlement = self.settle(recorded, driver.exit_code or 0, steps, log_is_read=driver.log_read)
        if plans.run.record.has_ended:
            self.spark.forget(*plans.run.record.identities)
        error = settlement.error()
        if isinstance(error, WriteConflictError):
            self._record_loss(settlement)
        if error:
            raise error

    def _record_loss(self, settlement: Settlement) -> None:
        """Record that the next try runs alone, after the writers that it lost to."""
        plans = self.plans
        touched = self.limits.declared or ()
        own_times = plans.run.record.instants_in(plans.path)
        rivals = pending_rivals(
            plans.table, settlement, touched, own_times, plans.rule, clusterings=False
        )
        plans.run.escalate((), rivals)

    def settle(
        self,
        recorded: AttemptRecorder,
        exit_code: int,
        steps: Sequence[str],
        *,
        log_is_read: bool = True,
    ) -> Settlement:
        """Return the settlement of an ended driver; the table shows what it did.

        :param exit_code: as the submitter observed it, negative for a signal.
        :param log_is_read: whether the driver's log was read to its end.
        """
        exit_code, reading = recorded.log.outcome_of(exit_code, is_read=log_is_read)
        ran = any(step.startswith("run=") or step == ServiceOp.SCHEDULE_AND_RUN for step in steps)
        well = Outcome.COMMITTED if ran else Outcome.NOTHING_WRITTEN
        outcome = reading.outcome if exit_code else well
        settlement = Settlement(
            outcome, reading.instant, reading.rival, reading.lines, exit_code=exit_code
        )
        if settlement.error():
            rival = find_rival(self.plans.table, settlement.instant, settlement.rival)
            settlement = rival.explained(settlement, recorded.seconds, "")
        recorded.settled(settlement)
        self.on_settled(outcome, recorded.seconds)
        return settlement


def end_earlier_services(run: Journal, submitter_of: Callable[[Handle], Submitter], log: Any) -> None:
    """End the visible drivers of earlier tries; settle those seen to end.

    :param submitter_of: returns what follows a driver.
    :raises FenceError: if a driver does not end.
    """
    end_earlier_drivers(run, submitter_of, log)
    for attempt in run.record.unsettled:
        if attempt.end:
            run.settle(attempt)


def serve(run: ProtectedTry, task: ServiceTask) -> dict[str, Any]:
    """Do a table service's work once admitted, and return its result by the table.

    :raises WaitNeeded: if it is not admitted yet, or other drivers have to end first.
    """
    started = time.monotonic()
    with known_state(run.journal):
        run.recover()
        end_earlier_services(run.journal, run.spark.submitter, run.log)
    run.look_up()
    run.refuse_deaths()
    options = run.known_options(run.prepare())
    plans = plans_of(run, task, HeartbeatRule.of(options))
    limits = ServiceLimits(task.service, run.claim.partitions, run.log)
    with run.admitted(options) as admitted:
        run.wait_for_rivals(options)
        attempt = ServiceAttempt(plans, limits, run.spark, run.task_run.measures.attempt)
        facts = attempt.facts(run.job, run.prepare(admitted.order_token), admitted)
    run.journal.succeed()
    result = {**facts, "seconds": round(time.monotonic() - started, 1)}
    run.log.info("%s of %s: %s", task.service.capitalize(), run.spec.table, result)
    return result


def plans_of(run: ProtectedTry, task: ServiceTask, rule: HeartbeatRule) -> ServicePlans:
    """Return the plans of a try, with a rule that judges their heartbeats."""
    return ServicePlans(task, run.journal, run.table, run.spec.table, rule, run.wait, run.log)
