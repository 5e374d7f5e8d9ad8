"""The pending plans of one table service, and what a task run does with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.waits import InstantsWait
from airflow_occ_provider.errors import ConfigurationError, FenceError, JobError
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
from airflow_occ_provider.storage.service_plans import pending_plans, signed_plans
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_A_SECOND_MS = 1000
_INSTANT = re.compile(r"\d{14,20}")
_AROUND = re.compile(r"[\s\[\]()'\",]*")


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
