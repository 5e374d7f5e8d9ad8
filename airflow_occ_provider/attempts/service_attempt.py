"""One attempt of a table service, from its plans to the table's verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.attempt_recorder import AttemptRecorder, new_attempt
from airflow_occ_provider.attempts.commit import table_before
from airflow_occ_provider.attempts.driver import DriverRun
from airflow_occ_provider.attempts.earlier_tries import end_earlier_drivers
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.rivals import find_rival, pending_rivals
from airflow_occ_provider.attempts.service_limits import ServiceLimits
from airflow_occ_provider.attempts.service_plans import ServicePlans
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.work import work_digest
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.hudi.writer.table_service import ServiceOp
from airflow_occ_provider.storage.address import canonical_table


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
        plans, task = self.plans, self.plans.task
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
        plans, touched = self.plans, self.limits.declared or ()
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
