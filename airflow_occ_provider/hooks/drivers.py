"""The drivers of a task, where its ``via`` or its Spark connection says."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.staging import offered
from airflow_occ_provider.attempts.submission import (
    IDENTITY_VARIABLE,
    SparkJob,
    Submission,
    private_folder,
    remove_leftovers,
)
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.driver.attempt import LIFE_S
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.hooks.launch import Launch
from airflow_occ_provider.hooks.places import PlacedTask, place_type
from airflow_occ_provider.hooks.via import StartedPlace
from airflow_occ_provider.storage.attempt_folder import AttemptFolder, run_folder
from airflow_occ_provider.storage.shared_folders import shared_folder
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.local_place import LocalPlace, end_processes_of
from airflow_occ_provider.submitters.place import Place

_SERVICES = {"livy://": "LivyOperator", "aws://": "EmrServerlessStartJobOperator"}
"""The operators that submit to services, by how Spark's hook names a connection of them."""
_VIA, _OTHER_NAMES = "via", {"k8s": "kubernetes"}
_STORAGE = "storage_conn_id"


@dataclass(frozen=True)
class TaskDrivers:
    """The drivers of one task, in one place.

    :param place: returns where one submission runs; of ``None``, where drivers of the task may have
        been started by other processes.
    :param table: base path of the table that they write: their folders are beside it, but for drivers
        of this host.
    :param storage_conn_id: connection of the storage of their folders.
    :param deploy_mode: Spark's, as the connection or the task names it.
    """

    place: Callable[[Launch | None], Place]
    table: str
    storage_conn_id: str | None = None
    deploy_mode: Any = "cluster"

    @property
    def is_remote(self) -> bool:
        """Whether they run elsewhere, and outlive the task."""
        return not self._others.is_local

    @property
    def site(self) -> Site | None:
        """Their site's configuration; ``None`` if it is this machine's."""
        return self._others.site

    @cached_property
    def _others(self) -> Place:
        """Where drivers of the task that other processes have started may be."""
        return self.place(None)

    def refuse(self, site: Site) -> None:
        """Refuse what cannot be made safe there.

        That is also a table beside which there can be no folder.

        :param site: the configuration of Spark that the drivers would read.
        :raises ConfigurationError: naming the argument or setting.
        """
        self._others.refuse(site)
        if self.is_remote:
            run_folder(self.table, "")

    @contextmanager
    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> Iterator[Submission]:
        """Write what a driver needs into the folder of a new attempt.

        What submits it has a private folder of this host, which also is that of a driver of this host.
        """
        identity = options.get(IDENTITY_KEY, "")
        with private_folder(identity) as private:
            url = f"{run_folder(self.table, identity)}/{secrets.token_hex(4)}" if self.is_remote else ""
            folder = self._opened(url or str(private))
            with offered(job, options, folder, without=without, is_private=not url) as submission:
                environment = {} if self.is_remote else {IDENTITY_VARIABLE: identity}
                yield replace(submission, environment=environment, folder=str(private))

    def forget(self, identity: str) -> None:
        """Remove the folders of a task run's attempts, all of which have ended.

        Its place removes what it has kept of them.
        """
        remove_leftovers(identity)
        self._others.forget(identity)
        if self.is_remote:
            self._opened(run_folder(self.table, identity)).clear()

    def revoke_unrecorded(self, run: str, lease_ttl_s: float) -> dict[str, list[Handle]]:
        """Revoke all visible drivers of a task run whose record is lost.

        Where they were submitted is unknown, so only the folder proves their ends. Those of this host
        are ended; one of another host ends with its task's process.

        :param run: the beginning of the run's identities.
        :param lease_ttl_s: of a lease on which their commits may depend.
        :return: those that were granted, by the identities that have folders.
        :raises FenceError: if one of this host does not end.
        """
        if not self.is_remote:
            end_processes_of(run)
            return {}
        submitter = folder_driver(StartedPlace(), self.storage_conn_id, Flag())
        life_s, drivers = max(LIFE_S, lease_ttl_s), {}
        for identity in sorted(self._opened(run_folder(self.table, "")).entries()):
            if identity.startswith(run):
                url = run_folder(self.table, identity)
                folders = (self._opened(f"{url}/{name}") for name in sorted(self._opened(url).entries()))
                handles = (submitter.revoke_unrecorded(folder, life_s) for folder in folders)
                drivers[identity] = list(filter(None, handles))
        return drivers

    def submitter(self, launch: Launch) -> FolderDriver:
        """Return the submitter of one driver."""
        limit = launch.start_limit.in_cluster if self.is_remote else launch.start_limit.on_worker
        driver = folder_driver(self.place(launch), self.storage_conn_id, launch.killed)
        driver.submission = launch.submission
        driver.start_limit = limit
        return driver

    def _opened(self, url: str) -> AttemptFolder:
        return open_folder(url, self.storage_conn_id)


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
        drivers = _drivers_in(LocalPlace.name, task, "conn_id", "client mode")
        return replace(drivers, storage_conn_id=None, deploy_mode=mode)
    scheme = task.master.partition("://")[0]
    if scheme == LocalPlace.name:
        raise ConfigurationError(
            f"connection {task.conn_id!r}",
            f"the master {task.master!r} has no cluster mode",
            remedy="use client mode, or name the master of a cluster",
        )
    reason = f"the master {task.master!r} in cluster mode"
    return _drivers_in(_OTHER_NAMES.get(scheme, scheme), task, f"connection {task.conn_id!r}", reason)


def _drivers_in(name: str, task: PlacedTask, field: str, reason: str) -> TaskDrivers:
    """Return the drivers of a task in the place of a name."""
    place_of_task = place_type(name, field, reason).place_of_task
    return TaskDrivers(partial(place_of_task, task), task.operator.table, task.operator.storage_conn_id)


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


def open_folder(url: str, storage_conn_id: str | None) -> AttemptFolder:
    """Return the folder at a URL.

    :param storage_conn_id: connection of its storage; by default the worker's own credentials.
    """
    return AttemptFolder(url, file_system=storage_of(url, storage_conn_id))


def follower(handle: Handle, killed: Flag | None = None) -> Submitter:
    """Return a submitter that polls, reads and ends a driver, and starts none.

    :param handle: of the driver; it names the submitter that started it.
    :param killed: set when the task is asked to stop.
    :raises ConfigurationError: if no installed package has its place.
    """
    place = place_type(handle.submitter, "submitter", str(handle)).place_of_handle(handle)
    return folder_driver(place, handle.facts.get(_STORAGE), killed or Flag())


def service_of(handle: Handle) -> str:
    """Return the name of what answers calls about a driver: one for each cluster."""
    facts = handle.facts
    conn_id = facts.get("conn_id") or facts.get(_STORAGE) or ""
    return " ".join((handle.submitter, conn_id, *sorted(facts.get("resource_managers", ()))))


def folder_driver(place: Place, storage_conn_id: str | None, killed: Flag) -> FolderDriver:
    """Return what follows and ends drivers of earlier processes in a place.

    :param storage_conn_id: connection of the storage of the drivers' folders.
    """
    opened = partial(open_folder, storage_conn_id=storage_conn_id)
    shared = partial(shared_folder, storage_conn_id=storage_conn_id, open_folder=opened)
    return FolderDriver(shared, place, origin={_STORAGE: storage_conn_id}, killed=killed)
