"""The id and policy of this Airflow deployment, and the owners of its leases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import conf

from airflow_occ_provider.attempts.write_spec import WritePolicy, site_fields
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.spelling import spell_owner

if TYPE_CHECKING:
    from airflow.sdk import Context

SECTION = "hudi_occ"
SITE_OPTION = "site_id"
POLICY_OPTION = "write_policy"
# What all processes of one deployment have; a worker has neither the metadata database nor its address.
_ADDRESSES = (("api", "base_url"), ("core", "execution_api_server_url"))


def site() -> str:
    """Return this deployment's constant id, which no other deployment should have.

    It is ``[hudi_occ] site_id``, or else a hash of the address of the deployment's API server.
    """
    configured = _configured(SECTION, SITE_OPTION)
    if configured:
        return configured
    address = next(filter(None, (_configured(*option) for option in _ADDRESSES)), "")
    return hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:12]


def write_policy(value: WritePolicy | Mapping[str, Any] | None) -> WritePolicy:
    """Return the policy of an operator's argument, over that of the deployment.

    :raises ConfigurationError: for a field that is unknown or wrong.
    """
    return WritePolicy.of(value, site_fields(_configured(SECTION, POLICY_OPTION)))


def _configured(section: str, option: str) -> str:
    return str(conf.get(section, option, fallback="") or "").strip()


def task_owner(context: Context) -> Owner:
    """Return the owner of a task's leases."""
    ti = context["ti"]
    path = (ti.dag_id, ti.run_id, ti.task_id)
    return Owner((*path, str(ti.map_index)) if _is_mapped(ti) else path, site=site())


def run_owner(context: Context) -> Owner:
    """Return the owner of a lease that a task requests for its whole run."""
    ti = context["ti"]
    names = (ti.task_id, str(ti.map_index)) if _is_mapped(ti) else (ti.task_id,)
    return Owner((ti.dag_id, ti.run_id), spell_owner(names), site())


def _is_mapped(ti: Any) -> bool:
    return ti.map_index is not None and ti.map_index >= 0
