"""One try of a table service: its plans, its limits, and the table's verdict."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from airflow_occ_provider.attempts.attempt import AttemptRecorder, new_attempt
from airflow_occ_provider.attempts.commit import table_before
from airflow_occ_provider.attempts.driver import Admitted, DriverRun
from airflow_occ_provider.attempts.earlier_tries import end_earlier_drivers
from airflow_occ_provider.attempts.jobs import work_digest
from airflow_occ_provider.attempts.journal import Journal, known_state, now_ms
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.rivals import find_rival, pending_rivals
from airflow_occ_provider.attempts.scope import prefers_writers
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.waits import InstantsWait
from airflow_occ_provider.attempts.write import ProtectedTry
from airflow_occ_provider.errors import ConfigurationError, FenceError, JobError, WriteConflictError
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import (
    DeadPlan,
    Plan,
    PlanChoice,
    PlanRule,
    Service,
    ServiceOp,
    choose,
)
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_plans, signed_plans

_A_SECOND_MS = 1000
_INSTANT = re.compile(r"\d{14,20}")
_AROUND = re.compile(r"[\s\[\]()'\",]*")
PARTITION_OPTIONS = "hoodie.clustering.plan.strategy.partition."
"""How the names of Hudi's options begin that select the partitions of a clustering plan."""
_PATTERN = f"{PARTITION_OPTIONS}regex.pattern"
_CHECKED_LAYOUT = 8


@dataclass(frozen=True, slots=True)
class ServiceTask:
    """The work of a table service task.

    :param plan_timeout: how long a plan stays in one state until no process runs it.
    :param named: the plans to run, and no others; ``None`` for all.
    """

    service: Service
    op: ServiceOp
    dead_plan: DeadPlan
    plan_timeout: timedelta
    named: tuple[str, ...] | None

    @property
    def runs_own(self) -> bool:
        """Whether the task also runs the plans that it makes."""
        return self.op is not ServiceOp.SCHEDULE


def named_plans(instants: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the named plans; a list that was rendered into a string is parsed.

    :raises ConfigurationError: if it contains anything but instants.
    """
    if instants is None:
        return None
    text = " ".join(map(str, [instants] if isinstance(instants, str) else instants))
    if not _AROUND.fullmatch(_INSTANT.sub("", text)):
        raise ConfigurationError(
            "instants",
            f"{instants!r} are no instants",
            remedy="give requested times, such as the 'scheduled' of another task's result",
        )
    return tuple(_INSTANT.findall(text))


def refuse_instants(instants: object, op: ServiceOp) -> None:
    """Refuse named plans for an operation that makes its own plan."""
    if instants is not None and op is not ServiceOp.RUN:
        raise ConfigurationError(
            "instants", f"op={str(op)!r} makes a plan of its own", remedy="use op='run'"
        )


@dataclass(frozen=True, slots=True)
class ServicePlans:
    """Chooses among the pending plans, and reports the result.

    :param wait: waits for the instants of other drivers, for a reason.
    """

    task: ServiceTask
    run: Journal
    table: HudiTable
    path: str
    rule: HeartbeatRule
    wait: Callable[[InstantsWait, str], None]
    log: Any

    def pending(self, snapshot: Snapshot, made: Collection[str]) -> tuple[Plan, ...]:
        """Return the pending plans, oldest first.

        :param made: requested times of those that this task run has made.
        """
        return tuple(pending_plans(snapshot, self.task.service, self.rule, frozenset(made)))

    def made(self, snapshot: Snapshot) -> dict[str, bool]:
        """Return the plans that this task run made, and whether each is completed."""
        record = self.run.record
        if record.since is None:
            return {}
        instants = signed_plans(self.table, snapshot, record.identity, record.since.commits)
        return {instant.time: instant.completed for instant in instants}

    def choose(
        self,
        snapshot: Snapshot,
        plans: Collection[Plan],
        made: Mapping[str, bool],
        outside: Collection[str],
    ) -> PlanChoice:
        """Decide what to do with each pending plan.

        :param outside: requested times of the plans that touch more than the task may.
        :raises ConfigurationError: if a named plan is not in the timeline.
        :raises FenceError: if a plan that has to be run cannot be, and no wait helps.
        :raises WaitNeeded: if another driver may be running such a plan.
        """
        task = self.task
        timeout_ms = round(task.plan_timeout.total_seconds() * 1000)
        fenced = not self.run.record.unsettled
        rule = PlanRule(task.op, task.dead_plan, timeout_ms, task.named, fenced=fenced)
        choice = choose(plans, rule, scheduled=any(made.values()), outside=outside)
        self._log(choice)
        for instant in task.named or ():
            if snapshot.timeline.find(instant) is None:
                raise ConfigurationError(
                    "instants",
                    f"{instant} is not in the timeline of {self.path}",
                    remedy=f"name pending {task.service} plans; one that was rolled back is gone",
                )
        must = set(task.named or ()) | (made.keys() if task.runs_own else set())
        stuck = {instant: why for instant, why in choice.leave.items() if instant in must}
        if stuck:
            reasons = "; ".join(f"{instant}: {why}" for instant, why in stuck.items())
            self._wait([plan for plan in plans if plan.time in stuck], rule, outside, reasons)
        self.run.forget_rivals()
        return choice

    def facts(self, after: Snapshot, choice: PlanChoice) -> dict[str, Any]:
        """Return the result of a choice by the table.

        :raises JobError: if a driver that ended without an error left a step undone.
        """
        task = self.task
        made = self.made(after)
        pending = {plan.time for plan in pending_plans(after, task.service, HeartbeatRule())}
        wanted = {*choice.run, *(made if task.runs_own else ()), *(task.named or ())}
        undone = {*(wanted - {*choice.roll_back} & pending), *(choice.roll_back.keys() & pending)}
        if undone:
            raise JobError(
                f"the driver ended well, but {task.service} {', '.join(sorted(undone))} is pending",
                outcome=Outcome.JOB_ERROR,
                remedy="look in the driver's log what kept Hudi from it",
            )
        gone = [time for time in choice.roll_back if after.timeline.find(time) is None]
        done = [time for time in wanted if (instant := after.timeline.find(time)) and instant.completed]
        return {
            "scheduled": sorted(made),
            "completed": sorted(done),
            "rolled_back": sorted(gone),
            "left": sorted(pending if task.runs_own else pending - {*made}),
        }

    def retire(self, plans: Iterable[Plan]) -> None:
        """Remove the heartbeats of plans whose executor has ended.

        A live heartbeat would keep Hudi from the plan.
        """
        for plan in plans:
            if plan.heartbeat.last_ms is not None and self.table.retire_heartbeat(plan.time):
                self.log.info("The heartbeat of %s was removed: its driver has ended.", plan.time)

    def _log(self, choice: PlanChoice) -> None:
        for does, chosen in (
            ("roll back", choice.roll_back),
            ("run", choice.run),
            ("leave", choice.leave),
        ):
            for instant, reason in chosen.items():
                self.log.info("Will %s %s %s: %s.", does, self.task.service, instant, reason)

    def _wait(
        self, plans: Sequence[Plan], rule: PlanRule, outside: Collection[str], reasons: str
    ) -> None:
        """Wait until plans that another driver may be running are over, or that driver is dead."""
        if any(plan.time in outside or rule.is_dead(plan) for plan in plans):
            raise FenceError(
                f"{self.task.service} plans that this task has to run cannot be run now ({reasons})",
                remedy="name plans within the scope, or widen it",
            )
        left_ms = max(rule.left_ms(plan) for plan in plans)
        wait = InstantsWait(
            tuple(plan.time for plan in plans),
            self.rule,
            tuple(fate for fate in Fate if fate.over),
            now_ms() + left_ms + _A_SECOND_MS,
        )
        why = f"{self.task.service} plans that another driver may be running ({reasons})"
        self.wait(wait, why)


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
                "Below table version 8, Hudi 1.2 and later take a clustering's own plan for a rival's, "
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
