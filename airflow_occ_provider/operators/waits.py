"""Waits as Airflow's deferrals: the one place at which a step defers a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow_occ_provider.attempts.waits import AdmissionWait, InstantsWait, SurvivorWait
from airflow_occ_provider.operators.admission import admission_trigger
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from airflow_occ_provider.triggers.survivor import HudiSurvivorTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator


def defer(
    task: HudiSparkOperator,
    wait: AdmissionWait | InstantsWait | SurvivorWait,
    method_name: str = "",
    kwargs: dict[str, Any] | None = None,
) -> NoReturn:
    """Defer a task until a wait is over.

    :param method_name: the method that resumes it; by default the one for the kind of wait.
    :param kwargs: arguments of the method, besides the event.
    """
    trigger, resume = _trigger(task, wait)
    task.defer(trigger=trigger, method_name=method_name or resume, kwargs=kwargs)
    raise AssertionError("not reached")


def _trigger(
    task: HudiSparkOperator, wait: AdmissionWait | InstantsWait | SurvivorWait
) -> tuple[BaseTrigger, str]:
    if isinstance(wait, AdmissionWait):
        return admission_trigger(wait, task.lock_conn_id), "execute_after_admission"
    if isinstance(wait, InstantsWait):
        return _heartbeat_trigger(task, wait), "execute_after_rivals"
    trigger = HudiSurvivorTrigger(
        table=wait.of.table,
        storage_conn_id=task.storage_conn_id,
        instants=wait.of.instants,
        until_ms=wait.of.until_ms,
        ended_ms=wait.of.ended_ms,
        deadline_ms=wait.deadline_ms,
        interval_ms=wait.rule.interval_ms,
        tolerable_misses=wait.rule.tolerable_misses,
    )
    return trigger, "execute_after_wait"


def _heartbeat_trigger(task: HudiSparkOperator, wait: InstantsWait) -> HudiHeartbeatTrigger:
    return HudiHeartbeatTrigger(
        table=task.table,
        storage_conn_id=task.storage_conn_id,
        instants=list(wait.instants),
        until=[fate.value for fate in wait.until],
        interval_ms=wait.rule.interval_ms,
        tolerable_misses=wait.rule.tolerable_misses,
        deadline_ms=wait.deadline_ms,
    )
