"""Places of drivers by their names, and the drivers of a task in its place.

Places are entry points of this package and of others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from airflow_occ_provider.attempts.site import NO_LIMIT, StartLimit
from airflow_occ_provider.attempts.submission import Submission, without_secrets
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.storage.attempt_folder import PROCESS_STORAGE, FolderStorage
from airflow_occ_provider.submitters.local_place import LocalPlace
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.processes import Flag
from airflow_occ_provider.submitters.task_drivers import STORAGE_FACT, TaskDrivers, folder_driver

if TYPE_CHECKING:
    from airflow.sdk import Context


GROUP = "airflow_occ_provider.places"
"""The group of the entry points. The name of each is that of its place."""
_SERVICES = {"livy://": "LivyOperator", "aws://": "EmrServerlessStartJobOperator"}
"""The operators that submit to services, by how Spark's hook names a connection of them."""
_VIA, _OTHER_NAMES = "via", {"k8s": "kubernetes"}


@dataclass(frozen=True, slots=True)
class Launch:
    """One submission of a task's job.

    :param spark: Spark's hook with the attempt's arguments.
    :param env_vars: the environment variables that the user has given to the task.
    :param killed: set when the task is asked to stop.
    :param site: what the site sets for Spark.
    :param start_limit: the longest wait for the begin of its job.
    """

    spark: Any
    submission: Submission
    env_vars: Mapping[str, str]
    killed: Flag
    site: Mapping[str, str] = field(default_factory=dict)
    start_limit: StartLimit = NO_LIMIT

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the process that submits."""
        return {**os.environ, **self.env_vars, **self.submission.environment}

    @property
    def conf(self) -> dict[str, str]:
        """The settings of Spark that the task gives."""
        return {name: str(value) for name, value in self.spark._conf.items()}

    def command(
        self, conf: Mapping[str, str] | None = None, *, master: str = "", deploy_mode: str = ""
    ) -> list[str]:
        """Return the command line of ``spark-submit``, without secrets.

        It has all that the task gives to Spark.

        :param conf: further settings of Spark, which replace those of the task.
        :param master: of Spark, in place of the connection's.
        :param deploy_mode: of Spark, in place of the connection's.
        """
        spark = copy(self.spark)
        master = master or spark._connection["master"]
        deploy_mode = deploy_mode or spark._connection["deploy_mode"]
        spark._connection = {**spark._connection, "master": master, "deploy_mode": deploy_mode}
        # The hook has chosen by the connection's address how it hands variables to a driver.
        spark._is_yarn = "yarn" in master
        spark._is_kubernetes = "k8s" in master
        settings = {**self.conf, **(conf or {})}
        texts, properties_file = without_secrets(settings, self.site, self.submission.folder)
        spark._conf = texts
        spark._properties_file = properties_file or spark._properties_file
        spark._env_vars = dict(self.env_vars)  # those of the submission are the launcher's
        return list(spark._build_spark_submit_command(self.submission.application))


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A task whose drivers run in a place.

    :param operator: the task.
    :param context: of this try.
    :param spark: Spark's hook, which has read the connection; ``None`` for a task with ``via``.
    """

    operator: Any
    context: Context
    spark: Any = None

    @property
    def conn_id(self) -> str:
        """The connection of the task."""
        return str(self.operator._conn_id)

    @property
    def master(self) -> str:
        """The master that the connection names. Its scheme is the name of the place."""
        return str(self.spark._connection["master"])


class PlaceType(Protocol):
    """What an entry point names: a module, or a class, with two functions."""

    def place_of_task(self, task: PlacedTask, launch: Launch | None) -> Place:
        """Return where one submission of a task runs.

        :param launch: ``None`` where drivers of the task may have been started by other processes.
        :raises ConfigurationError: if the connection misses what the place needs.
        """

    def place_of_handle(self, handle: Handle) -> Place:
        """Return where a driver of an earlier process runs.

        :param handle: with the facts of ``Place.identify``; this may be another host.
        """


def place_type(name: str, field: str, reason: str) -> PlaceType:
    """Return what opens the places of a name.

    :param field: the argument or setting that asks for it, for messages.
    :param reason: what needs it, for messages.
    :raises ConfigurationError: if no installed package has it, or it cannot be imported.
    """
    try:
        return _loaded(name)
    except LookupError:
        names = ", ".join(sorted(entry_points(group=GROUP).names))
        problem = f"which no installed package has (there are: {names})"
    except (ImportError, AttributeError) as error:
        problem = f"which cannot be imported: {error}"
    raise ConfigurationError(
        field,
        f"{reason} needs the place {name!r}, {problem}",
        remedy="install the package that has it, and what that requires, on the workers and triggerers; "
        "or use client mode, another master, or via",
    )


@cache
def _loaded(name: str) -> PlaceType:
    """Return what an entry point names; it reads the metadata of all installed packages.

    :raises LookupError: if there is no entry point of the name.
    """
    place: PlaceType = entry_points(group=GROUP)[name].load()
    return place


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


def follower(handle: Handle, killed: Flag | None = None, *, has_ended: bool = False) -> Submitter:
    """Return a submitter that polls, reads and ends a driver, and starts none.

    :param handle: of the driver; it names the submitter that started it.
    :param killed: set when the task is asked to stop.
    :param has_ended: whether an earlier process of the task has proven its end.
    :raises ConfigurationError: if no installed package has its place.
    """
    place = place_type(handle.submitter, "submitter", str(handle)).place_of_handle(handle)
    submitter = folder_driver(place, folder_storage(handle.facts.get(STORAGE_FACT)), killed)
    submitter.has_ended = has_ended
    return submitter


def service_of(handle: Handle) -> str:
    """Return the name of what answers calls about a driver: one for each cluster."""
    facts = handle.facts
    conn_id = facts.get("conn_id") or facts.get(STORAGE_FACT) or ""
    return " ".join((handle.submitter, conn_id, *sorted(facts.get("resource_managers", ()))))
