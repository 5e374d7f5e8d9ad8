"""Waits as Airflow's deferrals: triggers, and the one place that defers a task."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowRescheduleException
from airflow.sdk.timezone import utcnow

from airflow_occ_provider.attempts.waits import AdmissionWait, DriverWait, InstantsWait, TaskWait
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger
from airflow_occ_provider.triggers.survivor import HudiSurvivorTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator


def defer(
    task: HudiSparkOperator,
    wait: TaskWait,
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


def admission_trigger(wait: AdmissionWait, lock_conn_id: str) -> HudiAdmissionTrigger:
    """Return the trigger that waits for a lease."""
    return HudiAdmissionTrigger(
        lock_conn_id=lock_conn_id,
        ticket=wait.ticket.to_json(),
        ttl_ms=wait.ttl_ms,
        claim_ttl_ms=wait.claim_ttl_ms,
        deadline_ms=wait.deadline_ms,
    )


def log_admission(event: Mapping[str, Any], log: Any) -> None:
    """Log the event of an admission trigger.

    :raises AirflowRescheduleException: if the triggerer has no slot for another waiter.
    """
    if event["status"] == "full":
        log.info("The triggerer is full of waiters: the task asks again in %g s.", event["again_s"])
        raise AirflowRescheduleException(utcnow() + timedelta(seconds=event["again_s"]))
    messages = {
        "granted": "The lease was granted.",
        "lost": f"The queued request was lost ({event.get('message')}): it is queued again, behind "
        "all that are queued now.",
        "timeout": "The wait for the lease has timed out.",
    }
    log.info("%s", messages.get(event["status"]) or event.get("message"))


def _trigger(task: HudiSparkOperator, wait: TaskWait) -> tuple[BaseTrigger, str]:
    if isinstance(wait, AdmissionWait):
        return admission_trigger(wait, task.lock_conn_id), "execute_after_admission"
    if isinstance(wait, InstantsWait):
        return _heartbeat_trigger(task, wait), "execute_after_rivals"
    if isinstance(wait, DriverWait):
        return _driver_trigger(task, wait), "execute_after_driver"
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


def _driver_trigger(task: HudiSparkOperator, wait: DriverWait) -> HudiDriverTrigger:
    lease = wait.lease
    limit = task.execution_timeout
    return HudiDriverTrigger(
        lock_conn_id=task.lock_conn_id,
        ticket=lease.ticket.to_json() if lease else {},
        ttl_ms=lease.ttl_ms if lease else 0,
        claim_ttl_ms=lease.claim_ttl_ms if lease else 0,
        deadline_ms=wait.started_ms + round(limit.total_seconds() * 1000) if limit else 0,
        driver=wait.handle.to_json(),
        is_fenced=wait.is_fenced,
        table=task.table,
        storage_conn_id=task.storage_conn_id,
        interval_ms=wait.rule.interval_ms,
        tolerable_misses=wait.rule.tolerable_misses,
        early_stop=wait.early_stop.value,
        strategy=wait.strategy.value if wait.strategy else None,
    )
