"""Where the drivers of a task run: chosen by its Spark connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
)
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.launch import Launch
from airflow_occ_provider.hooks.local import LocalDrivers
from airflow_occ_provider.hooks.place_drivers import PlaceDrivers
from airflow_occ_provider.hooks.places import PlacedTask, place_type
from airflow_occ_provider.submitters.local_place import LocalPlace

_SERVICES = {"livy://": "LivyOperator", "aws://": "EmrServerlessStartJobOperator"}
"""The operators that submit to services, by how Spark's hook names a connection of them."""
_VIA, _OTHER_NAMES = "via", {"k8s": "kubernetes"}


class TaskDrivers(Protocol):
    """The drivers of one task, in one place."""

    @property
    def deploy_mode(self) -> Any:
        """Spark's deploy mode there."""

    @property
    def is_remote(self) -> bool:
        """Whether they run elsewhere, and outlive the task."""

    @property
    def site(self) -> Site | None:
        """Their site's configuration; ``None`` if it is this machine's."""

    def refuse(self, site: Site) -> None:
        """Refuse what cannot be made safe there.

        :param site: the configuration of Spark that the drivers would read.
        :raises ConfigurationError: naming the argument or setting.
        """

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Make a driver's input for the time of a block, or until its task is waited for."""

    def forget(self, identity: str) -> None:
        """Remove what is left of a task run's drivers, all of which have ended."""

    def revoke_unrecorded(self, run: str, lease_ttl_s: float) -> Mapping[str, Sequence[Handle]]:
        """Revoke all visible drivers of a task run whose record is lost.

        :param run: the beginning of the run's identities.
        :param lease_ttl_s: of a lease on which their commits may depend.
        :return: those whose ends are to be proven, by identity.
        """

    def submitter(self, launch: Launch) -> Submitter:
        """Return what runs one submission."""


def drivers_of(task: PlacedTask) -> TaskDrivers:
    """Return the drivers of a task: where its ``via`` or its connection says.

    :raises ConfigurationError: if the connection names a service, or a place that is not installed.
    """
    operator = task.operator
    if operator.via:
        return _drivers_in(_VIA, task, "via", "a task with via")
    _refuse_service(task.conn_id, task.master)
    mode = task.spark._connection["deploy_mode"]
    if mode != "cluster":
        return LocalDrivers(mode)
    scheme = task.master.partition("://")[0]
    if scheme == LocalPlace.name:
        raise ConfigurationError(
            f"connection {task.conn_id!r}",
            f"the master {task.master!r} has no cluster mode",
            remedy="use client mode, or name the master of a cluster",
        )
    reason = f"the master {task.master!r} in cluster mode"
    return _drivers_in(_OTHER_NAMES.get(scheme, scheme), task, f"connection {task.conn_id!r}", reason)


def _drivers_in(name: str, task: PlacedTask, field: str, reason: str) -> PlaceDrivers:
    """Return the drivers of a task in the place of a name."""
    place_of_task = place_type(name, field, reason).place_of_task
    return PlaceDrivers(partial(place_of_task, task), task.operator.table, task.operator.storage_conn_id)


def _refuse_service(conn_id: str, master: str) -> None:
    """Refuse a connection of a service that ``spark-submit`` cannot submit to.

    :raises ConfigurationError: naming the operator that submits there.
    """
    operator = next((name for start, name in _SERVICES.items() if master.startswith(start)), None)
    if operator:
        raise ConfigurationError(
            "conn_id",
            f"{conn_id!r} is a connection of {master.partition('://')[0]}, and spark-submit does not "
            "submit there",
            remedy=f"give via={operator}, and its arguments as via_kwargs",
        )
