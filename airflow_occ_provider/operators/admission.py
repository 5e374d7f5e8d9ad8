"""Admission in Airflow's terms: a deferred wait for a lease, and lease owners."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRescheduleException
from airflow.sdk.timezone import utcnow

from airflow_occ_provider.attempts.waits import AdmissionWait
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.operators.deployment import site
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


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
    known = {
        "granted": "The lease was granted.",
        "lost": f"The queued request was lost ({event.get('message')}): it is queued again, behind "
        "all that are queued now.",
        "timeout": "The wait for the lease has timed out.",
    }
    log.info("%s", known.get(event["status"]) or event.get("message"))


def task_owner(context: Context) -> Owner:
    """Return the owner of a task's leases."""
    ti = context["ti"]
    path = (ti.dag_id, ti.run_id, ti.task_id)
    return Owner((*path, str(ti.map_index)) if _is_mapped(ti) else path, site=site())


def run_owner(context: Context) -> Owner:
    """Return the owner of a lease that a task requests for its whole run."""
    ti = context["ti"]
    task = f"{ti.task_id}[{ti.map_index}]" if _is_mapped(ti) else ti.task_id
    return Owner((ti.dag_id, ti.run_id), task, site())


def _is_mapped(ti: Any) -> bool:
    return ti.map_index is not None and ti.map_index >= 0
