"""Decides what a table service does with pending compactions and clusterings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.hudi.format.instant import Instant, State
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat


class Service(StrEnum):
    """A table service, named by the action of its request."""

    COMPACTION = "compaction"
    CLUSTERING = "clustering"

    @property
    def kinds(self) -> frozenset[str]:
        """Hudi's operation types; a log compaction counts as a compaction."""
        return frozenset({"COMPACT", "LOG_COMPACT"} if self is Service.COMPACTION else {"CLUSTER"})


class ServiceOp(StrEnum):
    """The operation of a table service."""

    SCHEDULE = "schedule"
    RUN = "run"
    SCHEDULE_AND_RUN = "schedule_and_run"


class DeadPlan(StrEnum):
    """The treatment of a plan that no process runs."""

    RUN = "run"
    ROLL_BACK = "roll_back"
    LEAVE = "leave"


class Plan(NamedTuple):
    """A pending plan of a table service.

    :param heartbeat: heartbeat of its driver; only compactions of Hudi 1.2 and later have one.
    :param idle_ms: milliseconds since it reached its state.
    :param is_ours: whether this task run scheduled it.
    :param overtaken_by: a write that completed after the plan was made and touched its file groups:
        a clustering that runs now would restore what that write replaced.
    """

    instant: Instant
    partitions: tuple[str, ...]
    heartbeat: Heartbeat
    idle_ms: int
    is_ours: bool = False
    overtaken_by: str | None = None

    @property
    def time(self) -> str:
        """Requested time of its instant."""
        return self.instant.time

    @property
    def runs_again(self) -> bool:
        """Whether Hudi can complete it; a log compaction is planned again instead.

        Hudi rolls an inflight log compaction back and refuses it. It also refuses one that a
        compaction has overtaken (1.2.0, ``BaseHoodieTableServiceClient.logCompact``).
        """
        return self.instant.requested_action != "logcompaction" and not self.overtaken_by


@dataclass(frozen=True, slots=True)
class PlanRule:
    """The rule by which a task treats pending plans.

    :param plan_timeout_ms: milliseconds in one state without a heartbeat, after which a plan is dead.
    :param named: the plans to run, and no others; ``None`` for all.
    :param fenced: whether all drivers that this task run started were seen to end.
    """

    op: ServiceOp
    dead_plan: DeadPlan
    plan_timeout_ms: int
    named: Collection[str] | None = None
    fenced: bool = True

    def is_dead(self, plan: Plan) -> bool:
        """Whether a plan is dead: no process runs it."""
        if plan.is_ours and self.fenced:
            return True
        return not plan.heartbeat.live and plan.idle_ms > self.plan_timeout_ms

    def left_ms(self, plan: Plan) -> int:
        """Return the milliseconds until a plan without a driver counts as dead."""
        return max(self.plan_timeout_ms - plan.idle_ms, plan.heartbeat.margin_ms or 0, 0)

    def step(self, plan: Plan) -> tuple[DeadPlan, str]:
        """Return the treatment of a plan, and the reason."""
        if self.named is not None and plan.time not in self.named:
            return DeadPlan.LEAVE, "it is not one of the named instants"
        if self.op is ServiceOp.SCHEDULE:
            return DeadPlan.LEAVE, "the task only schedules"
        idle = f"{plan.idle_ms / 1000:.0f} s {plan.instant.state.lower()}"
        if not self.is_dead(plan):
            return self._living(plan, idle)
        wanted = self._wanted(plan)
        if wanted is DeadPlan.RUN and not plan.runs_again:
            by = f"{plan.overtaken_by} was committed since" if plan.overtaken_by else "it is mutable"
            return DeadPlan.ROLL_BACK, f"it can no longer be run: {by}"
        return wanted, "this task run scheduled it" if plan.is_ours else f"no driver runs it, {idle}"

    def _wanted(self, plan: Plan) -> DeadPlan:
        named = self.named is not None and self.dead_plan is DeadPlan.LEAVE
        return DeadPlan.RUN if plan.is_ours or named else self.dead_plan

    def _living(self, plan: Plan, idle: str) -> tuple[DeadPlan, str]:
        if plan.heartbeat.live:
            return DeadPlan.LEAVE, "a driver runs it: its heartbeat is alive"
        if plan.instant.state is State.REQUESTED and self.op is ServiceOp.RUN and plan.runs_again:
            return DeadPlan.RUN, f"it is pending, {idle}"
        return DeadPlan.LEAVE, f"a driver may run it, {idle}"


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """The plans that a task rolls back, runs and leaves, oldest first, and why.

    :param schedule: whether to make a new plan.
    """

    roll_back: dict[str, str] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    leave: dict[str, str] = field(default_factory=dict)
    schedule: bool = False

    def steps(self, op: ServiceOp) -> tuple[str, ...]:
        """Return the steps for ``in_driver/table_service.py``; empty if none are due."""
        return (
            *(f"roll_back={time}" for time in self.roll_back),
            *(f"run={time}" for time in self.run),
            *((str(op),) if self.schedule else ()),
        )


def choose(
    plans: Iterable[Plan], rule: PlanRule, *, scheduled: bool, outside: Collection[str] = ()
) -> PlanChoice:
    """Decide the treatment of a service's pending plans, given oldest first.

    :param scheduled: whether a plan of this task run is already completed.
    :param outside: the plans that touch more than the task's scope.
    """
    pending = tuple(plans)
    good = any(plan.is_ours and plan.runs_again for plan in pending)
    wanted = rule.op is not ServiceOp.RUN and not scheduled and not good
    choice = PlanChoice(schedule=wanted)
    for plan in pending:
        step, reason = rule.step(plan)
        if step is not DeadPlan.LEAVE and plan.time in outside:
            step, reason = DeadPlan.LEAVE, "it touches partitions outside the scope"
        reasons = {DeadPlan.RUN: choice.run, DeadPlan.ROLL_BACK: choice.roll_back}.get(
            step, choice.leave
        )
        reasons[plan.time] = reason
    return choice
