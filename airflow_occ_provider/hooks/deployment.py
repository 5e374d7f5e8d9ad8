"""The id of this Airflow deployment, and the owners of its leases."""

from __future__ import annotations

import time
import uuid
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_occ_provider.errors import StateStoreError
from airflow_occ_provider.leases.rules import Owner

if TYPE_CHECKING:
    from airflow.sdk import Context

SITE_KEY = "airflow_occ_site"
"""Airflow Variable of the site id. Made with the first lease or signed write; two deployments that
share a copied database need values of their own, such as by ``AIRFLOW_VAR_AIRFLOW_OCC_SITE``."""
_SETTLE_S = 1.0
_DESCRIPTION = (
    "Tells this deployment from others in Hudi's queues; not to be changed while leases are held"
)


@cache
def site() -> str:
    """Return this deployment's constant id, which no other deployment has.

    :raises StateStoreError: if Airflow does not answer.
    """
    try:
        return known_site() or _made()
    except (AirflowRuntimeError, ImportError, OSError, EOFError) as error:
        raise StateStoreError(
            f"Airflow did not tell or take the Variable {SITE_KEY}: {error}",
            remedy=f"look at the API server's log, or set the Variable {SITE_KEY} by hand, in each "
            "deployment to another value",
        ) from error


def known_site() -> str:
    """Return this deployment's id without making one; empty if there is none yet."""
    return str(Variable.get(SITE_KEY, default="") or "").strip()


def _made() -> str:
    # Airflow also reports a Variable as missing while its API server is down.
    if SITE_KEY not in list(Variable.keys(prefix=SITE_KEY)):
        Variable.set(SITE_KEY, uuid.uuid4().hex[:12], _DESCRIPTION)
    # If several tasks are the first at the same time, the last one to write decides.
    found, before = known_site(), None
    while found != before:
        time.sleep(_SETTLE_S)
        found, before = known_site(), found
    if not found:
        raise OSError(f"the Variable {SITE_KEY} is there, but was not read")
    return found


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
