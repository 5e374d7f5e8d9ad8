"""``TableServiceOperator``: a compaction or clustering that stands in line with the writers."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow_occ_provider.errors import ConfigurationError, FenceError, JobError, WriteConflictError
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import (
    Choice,
    DeadPlan,
    Plan,
    Rule,
    Service,
    ServiceOp,
    choose,
)
from airflow_occ_provider.jobs import service_job
from airflow_occ_provider.jobs.attempt import prepared
from airflow_occ_provider.jobs.outcome import Outcome
from airflow_occ_provider.jobs.record import digest
from airflow_occ_provider.jobs.rival import find_rival
from airflow_occ_provider.jobs.settle import Settlement
from airflow_occ_provider.operators.admitted import Admitted
from airflow_occ_provider.operators.choices import dead_plan_choice, refuse_foreign, service_op_choice
from airflow_occ_provider.operators.earlier_tries import EarlierTries
from airflow_occ_provider.operators.preparation import Preparation
from airflow_occ_provider.operators.protected import ProtectedOperator
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES, HudiConflictRetryPolicy
from airflow_occ_provider.operators.rivals import pending_rivals
from airflow_occ_provider.operators.service_claim import ServiceClaim
from airflow_occ_provider.operators.task_run import TaskRun, known_state, now_ms
from airflow_occ_provider.operators.told_attempt import ToldAttempt
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.service_plans import pending_plans, signed_plans
from airflow_occ_provider.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy

_FOREIGN = ("application", "application_args", "key_safe", "reads_table")
_A_SECOND_MS = 1000
_INSTANT = re.compile(r"\d{14,20}")
_AROUND = re.compile(r"[\s\[\]()'\",]*")


class TableServiceOperator(ProtectedOperator):
    """Plan and run a table service of one Hudi table, and clean up after those that died.

    :param op: ``"schedule"`` to make a plan, ``"run"`` to run the plans that are there, or both.
    :param instants: requested times of the plans to run, and no others. (templated)
    :param dead_plan: what becomes of a plan that nobody runs: ``"run"``, ``"roll_back"`` or
        ``"leave"``.
    :param plan_timeout: how long a plan stays in one state, without a live heartbeat, until nobody runs
        it. A task that has to run such a plan waits for that, without a worker slot.
    """

    service: ClassVar[Service]
    template_fields: Sequence[str] = (*ProtectedOperator.template_fields, "instants")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **ProtectedOperator.template_fields_renderers,
        "instants": "json",
    }
    ui_color = "#e4e9f7"

    def __init__(
        self,
        *,
        op: ServiceOp | str = ServiceOp.SCHEDULE_AND_RUN,
        instants: str | Sequence[str] | None = None,
        dead_plan: DeadPlan | str = DeadPlan.RUN,
        plan_timeout: timedelta = timedelta(hours=1),
        retries: int | None = DEFAULT_RETRIES,
        retry_policy: RetryPolicy | None = HudiConflictRetryPolicy(),  # noqa: B008 - Airflow reads defaults here
        **kwargs: Any,
    ) -> None:
        refuse_foreign(kwargs, _FOREIGN, "a table service has none: it runs a job of ours")
        super().__init__(
            application=service_job.__file__,
            application_args=None,  # named, so that default_args for writers do not reach it
            key_safe=False,
            reads_table=False,
            retries=retries,
            retry_policy=retry_policy,
            **kwargs,
        )
        self.op = service_op_choice(op)
        self.instants = instants
        self.dead_plan = dead_plan_choice(dead_plan)
        self.plan_timeout = plan_timeout
        self._beats = HeartbeatRule()
        if instants is not None and self.op is not ServiceOp.RUN:
            raise ConfigurationError(
                "instants", f"op={str(self.op)!r} makes a plan of its own", remedy="use op='run'"
            )

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Do what is asked, once admitted, and return what the table says came of it."""
        return self._execute(context)

    def _execute(self, context: Context) -> dict[str, Any]:
        self._warn_of_few_retries()
        started = time.monotonic()
        run = self._task_run(context)
        with known_state(run):
            self._end_earlier(run)
        self._refuse_deaths(run)
        options = self._known_options(context, run)
        self._beats = HeartbeatRule.of(options)
        with self._admitted(context, run, options) as admitted:
            self._wait_for_rivals(run, self._beats)
            facts = self._serve(context, run, admitted)
        run.succeed()
        result = {**facts, "seconds": round(time.monotonic() - started, 1)}
        self.log.info("%s of %s: %s", self.service.capitalize(), self.table, result)
        return result

    @property
    def _claim(self) -> ServiceClaim:
        table = canonical_table(self.table)
        return ServiceClaim(
            table, self._partitions, self.key_safe, self.reads_table, self.service, self._table_version
        )

    @cached_property
    def _table_version(self) -> int:
        return self._table.config().version

    @property
    def _named(self) -> tuple[str, ...] | None:
        """The plans that were named, also where a list was rendered into a string.

        :raises ConfigurationError: for what holds anything but instants.
        """
        if self.instants is None:
            return None
        text = " ".join(map(str, [self.instants] if isinstance(self.instants, str) else self.instants))
        if not _AROUND.fullmatch(_INSTANT.sub("", text)):
            raise ConfigurationError(
                "instants",
                f"{self.instants!r} are no instants",
                remedy="give requested times, such as the 'scheduled' of another task's result",
            )
        return tuple(_INSTANT.findall(text))

    def _end_earlier(self, run: TaskRun) -> None:
        """End the drivers that earlier tries left on this host; an end that was seen is settled."""
        tries = EarlierTries(run, lambda _: self._table, HeartbeatRule(), lambda _: None, self.log)
        tries.end_drivers()
        for attempt in run.record.unsettled:
            if attempt.end:
                run.settle(attempt)

    def _serve(self, context: Context, run: TaskRun, admitted: Admitted) -> dict[str, Any]:
        preparation = self._prepare(context, run, admitted.order_token)
        before = self._table.snapshot()
        self._refuse_table(before, preparation)
        own = self._own(run, before)
        plans = pending_plans(before, self.service, self._beats, frozenset(own))
        choice = self._choose(run, admitted, before, plans, own)
        run.begin(
            digest(self.application, (self.service, self.op), self.table),
            before.timeline.latest_completed_write or "",
        )
        steps = choice.steps(self.op)
        if steps:
            self._retire(plan for plan in plans if plan.own and plan.time in choice.run)
            self._drive(context, run, self._restricted(preparation, admitted), steps)
        else:
            self.log.info("There is nothing to do.")
        after = self._table.snapshot(before)
        facts = self._facts(run, after, choice)
        self._retire(plan for plan in plans if plan.time in facts["rolled_back"])
        return facts

    def _refuse_table(self, snapshot: Snapshot, preparation: Preparation) -> None:
        """Refuse a table that the service is not for."""

    def _restricted(self, preparation: Preparation, admitted: Admitted) -> Preparation:  # noqa: ARG002
        """Return what the driver is given, so that it plans no more than the task holds."""
        return preparation

    def _is_outside(self, plan: Plan, admitted: Admitted) -> bool:  # noqa: ARG002
        """Whether a plan touches more than the task may."""
        return False

    def _own(self, run: TaskRun, snapshot: Snapshot) -> dict[str, bool]:
        """Return the plans that tries of this task run have made, and whether each is completed."""
        if run.record.since is None:
            return {}
        found = signed_plans(self._table, snapshot, run.record.identity, run.record.since)
        return {instant.time: instant.completed for instant in found}

    def _choose(
        self,
        run: TaskRun,
        admitted: Admitted,
        snapshot: Snapshot,
        plans: Collection[Plan],
        own: Mapping[str, bool],
    ) -> Choice:
        named = self._named
        timeout_ms = round(self.plan_timeout.total_seconds() * 1000)
        rule = Rule(self.op, self.dead_plan, timeout_ms, named, fenced=not run.record.unsettled)
        outside = {plan.time for plan in plans if self._is_outside(plan, admitted)}
        choice = choose(plans, rule, scheduled=any(own.values()), outside=outside)
        for does, chosen in (
            ("roll back", choice.roll_back),
            ("run", choice.run),
            ("leave", choice.left),
        ):
            for instant, reason in chosen.items():
                self.log.info("Will %s %s %s: %s.", does, self.service, instant, reason)
        for instant in named or ():
            if snapshot.timeline.find(instant) is None:
                raise ConfigurationError(
                    "instants",
                    f"{instant} is not in the timeline of {self.table}",
                    remedy=f"name pending {self.service} plans; one that was rolled back is gone",
                )
        must = set(named or ()) | (own.keys() if self.op is not ServiceOp.SCHEDULE else set())
        stuck = {instant: why for instant, why in choice.left.items() if instant in must}
        if stuck:
            told = "; ".join(f"{instant}: {why}" for instant, why in stuck.items())
            self._wait_for_plans(
                run, [plan for plan in plans if plan.time in stuck], rule, outside, told
            )
        run.forget_rivals()
        return choice

    def _wait_for_plans(
        self, run: TaskRun, plans: Sequence[Plan], rule: Rule, outside: Collection[str], told: str
    ) -> NoReturn:
        """Defer until plans that another driver may be running are over, or that driver counts as dead.

        :raises FenceError: for plans that no wait helps.
        """
        if any(plan.time in outside or rule.is_dead(plan) for plan in plans):
            raise FenceError(
                f"{self.service} plans that this task has to run cannot be run now ({told})",
                remedy="name plans within the scope, or widen it",
            )
        left_ms = max(rule.left_ms(plan) for plan in plans)
        self._wait_for(
            run,
            [plan.time for plan in plans],
            f"{self.service} plans that another driver may be running ({told})",
            self._beats,
            until=[fate for fate in Fate if fate.over],
            until_ms=now_ms() + left_ms + _A_SECOND_MS,
        )

    def _drive(
        self, context: Context, run: TaskRun, preparation: Preparation, steps: Sequence[str]
    ) -> None:
        """Run one driver that takes the steps.

        :raises AttemptError: if it fails, with what its log says.
        """
        job = replace(self._job, arguments=(self.table, str(self.service), *steps))
        told = ToldAttempt(run, self.table, self.log)
        self._forget_driver()
        exit_code = None
        try:
            with prepared(job, preparation.options, preparation.site) as submission:
                exit_code = self._submit(context, submission, told.follower)
        finally:
            if self._driver_ended:
                code = exit_code if exit_code is not None else self._exit_code or 0
                read = bool(self._driver and self._driver.log_read)
                told.ended(code, log_read=read)
        settlement = self._settle(told, exit_code, steps)
        error = settlement.error()
        if isinstance(error, WriteConflictError):
            self._note_loss(run, settlement)
        if error:
            raise error

    def _note_loss(self, run: TaskRun, settlement: Settlement) -> None:
        """Record that the next try runs alone, after the writers that it lost to."""
        own = run.record.instants_in(self.table)
        rivals = pending_rivals(
            self._table, settlement, self._partitions or (), own, self._beats, clusterings=False
        )
        run.escalate((), rivals)

    def _settle(self, told: ToldAttempt, exit_code: int, steps: Sequence[str]) -> Settlement:
        """Say what a driver came to that has ended; what it did, the table says."""
        reading = told.log.read(exit_code, committed=False)
        ran = any(step.startswith("run=") or step == ServiceOp.SCHEDULE_AND_RUN for step in steps)
        well = Outcome.COMMITTED if ran else Outcome.NOTHING_WRITTEN
        outcome = reading.outcome if exit_code else well
        settlement = Settlement(
            outcome, reading.instant, reading.rival, reading.lines, exit_code=exit_code
        )
        if settlement.error():
            rival = find_rival(self._table, settlement.instant, settlement.rival)
            settlement = rival.explained(settlement, told.seconds, "")
        told.settled(settlement)
        metrics.attempt(self._work, outcome, told.seconds)
        return settlement

    def _facts(self, run: TaskRun, after: Snapshot, choice: Choice) -> dict[str, Any]:
        """Return what the table says came of it.

        :raises JobError: if a driver that ended well has left something undone.
        """
        own = self._own(run, after)
        left = {plan.time for plan in pending_plans(after, self.service, HeartbeatRule())}
        wanted = {*choice.run, *(own if self.op is not ServiceOp.SCHEDULE else ()), *(self._named or ())}
        undone = {*(wanted - {*choice.roll_back} & left), *(choice.roll_back.keys() & left)}
        if undone:
            raise JobError(
                f"the driver ended well, but {self.service} {', '.join(sorted(undone))} is pending",
                outcome=Outcome.JOB_ERROR,
                remedy="look in the driver's log what kept Hudi from it",
            )
        gone = [time for time in choice.roll_back if after.timeline.find(time) is None]
        done = [time for time in wanted if (found := after.timeline.find(time)) and found.completed]
        return {
            "scheduled": sorted(own),
            "completed": sorted(done),
            "rolled_back": sorted(gone),
            "left": sorted(left - {*own}) if self.op is ServiceOp.SCHEDULE else sorted(left),
        }

    def _retire(self, plans: Iterable[Plan]) -> None:
        """Remove the heartbeats of plans whose executor has ended: a live one would keep Hudi away."""
        for plan in plans:
            if plan.heartbeat.last_ms is not None and self._table.retire_heartbeat(plan.time):
                self.log.info("The heartbeat of %s was removed: its driver has ended.", plan.time)
