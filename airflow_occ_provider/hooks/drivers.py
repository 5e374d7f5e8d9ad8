"""The drivers of a task, where its ``via`` or its Spark connection says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.hooks.places import Launch, PlacedTask, place_type
from airflow_occ_provider.storage.attempt_folder import PROCESS_STORAGE, FolderStorage
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.local_place import LocalPlace
from airflow_occ_provider.submitters.task_drivers import STORAGE_FACT, TaskDrivers, folder_driver

_SERVICES = {"livy://": "LivyOperator", "aws://": "EmrServerlessStartJobOperator"}
"""The operators that submit to services, by how Spark's hook names a connection of them."""
_VIA, _OTHER_NAMES = "via", {"k8s": "kubernetes"}


def drivers_of(task: PlacedTask) -> TaskDrivers[Launch]:
    """Return the drivers of a task: where its ``via`` or its connection says.

    :raises ConfigurationError: if the connection names a service, or a place that is not installed.
    """
    operator = task.operator
    if operator.via:
        return _drivers_in(_VIA, task, "via", "a task with via")
    _refuse_service(task.conn_id, task.master)
    mode = task.spark._connection["deploy_mode"]
    if mode != "cluster":
        drivers = _drivers_in(LocalPlace.name, task, "conn_id", "client mode")
        return replace(drivers, storage=PROCESS_STORAGE, deploy_mode=mode)
    scheme = task.master.partition("://")[0]
    if scheme == LocalPlace.name:
        raise ConfigurationError(
            f"connection {task.conn_id!r}",
            f"the master {task.master!r} has no cluster mode",
            remedy="use client mode, or name the master of a cluster",
        )
    reason = f"the master {task.master!r} in cluster mode"
    return _drivers_in(_OTHER_NAMES.get(scheme, scheme), task, f"connection {task.conn_id!r}", reason)


def _drivers_in(name: str, task: PlacedTask, field: str, reason: str) -> TaskDrivers[Launch]:
    """Return the drivers of a task in the place of a name."""
    place_of_task = place_type(name, field, reason).place_of_task
    storage = folder_storage(task.operator.storage_conn_id)
    return TaskDrivers(partial(place_of_task, task), task.operator.table, storage)


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


def folder_storage(storage_conn_id: str | None) -> FolderStorage:
    """Return the storage of drivers' folders that an Airflow connection names.

    :param storage_conn_id: by default the worker's own credentials.
    """
    return FolderStorage(storage_conn_id, partial(storage_of, storage_conn_id=storage_conn_id))


def follower(handle: Handle, killed: Flag | None = None) -> Submitter:
    """Return a submitter that polls, reads and ends a driver, and starts none.

    :param handle: of the driver; it names the submitter that started it.
    :param killed: set when the task is asked to stop.
    :raises ConfigurationError: if no installed package has its place.
    """
    place = place_type(handle.submitter, "submitter", str(handle)).place_of_handle(handle)
    return folder_driver(place, folder_storage(handle.facts.get(STORAGE_FACT)), killed)


def service_of(handle: Handle) -> str:
    """Return the name of what answers calls about a driver: one for each cluster."""
    facts = handle.facts
    conn_id = facts.get("conn_id") or facts.get(STORAGE_FACT) or ""
    return " ".join((handle.submitter, conn_id, *sorted(facts.get("resource_managers", ()))))
