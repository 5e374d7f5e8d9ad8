"""The drivers of a task, in whatever place they run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site, StartLimit
from airflow_occ_provider.attempts.submission import (
    IDENTITY_VARIABLE,
    SparkJob,
    Submission,
    offered,
    private_folder,
    remove_leftovers,
)
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.driver.attempt import LIFE_S
from airflow_occ_provider.storage.attempt_folder import (
    PROCESS_STORAGE,
    FolderStorage,
    run_folder,
    shared_folder,
)
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.local_place import end_processes_of
from airflow_occ_provider.submitters.place import Place, StartedPlace
from airflow_occ_provider.submitters.processes import Flag

STORAGE_FACT = "storage_conn_id"
"""A fact of a handle: the name of the storage of the driver's folder."""


class Launched(Protocol):
    """One submission of a task's job."""

    @property
    def submission(self) -> Submission:
        """What is submitted."""

    @property
    def start_limit(self) -> StartLimit:
        """The longest wait for the begin of its job."""

    @property
    def killed(self) -> Flag:
        """Set when the task is asked to stop."""


LaunchedT = TypeVar("LaunchedT", bound=Launched)


@dataclass(frozen=True)
class TaskDrivers(Generic[LaunchedT]):
    """The drivers of one task, in one place.

    :param place: returns where one submission runs; of ``None``, where drivers of the task may have
        been started by other processes.
    :param table: base path of the table that they write: their folders are beside it, but for drivers
        of this host.
    :param storage: of their folders.
    :param deploy_mode: Spark's, as the connection or the task names it.
    """

    place: Callable[[LaunchedT | None], Place]
    table: str
    storage: FolderStorage = PROCESS_STORAGE
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
            folder = self.storage.open(url or str(private))
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
            self.storage.open(run_folder(self.table, identity)).clear()

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
        submitter = folder_driver(StartedPlace(), self.storage, Flag())
        life_s, drivers = max(LIFE_S, lease_ttl_s), {}
        for identity in sorted(self.storage.open(run_folder(self.table, "")).entries()):
            if identity.startswith(run):
                url = run_folder(self.table, identity)
                names = sorted(self.storage.open(url).entries())
                folders = (self.storage.open(f"{url}/{name}") for name in names)
                handles = (submitter.revoke_unrecorded(folder, life_s) for folder in folders)
                drivers[identity] = list(filter(None, handles))
        return drivers

    def submitter(self, launch: LaunchedT) -> FolderDriver:
        """Return the submitter of one driver."""
        limit = launch.start_limit.in_cluster if self.is_remote else launch.start_limit.on_worker
        driver = folder_driver(self.place(launch), self.storage, launch.killed)
        driver.submission = launch.submission
        driver.start_limit = limit
        return driver


def folder_driver(
    place: Place, storage: FolderStorage = PROCESS_STORAGE, killed: Flag | None = None
) -> FolderDriver:
    """Return what follows and ends drivers of earlier processes in a place.

    :param storage: of the drivers' folders.
    :param killed: set when the task is asked to stop.
    """
    shared = partial(shared_folder, storage_conn_id=storage.name, open_folder=storage.open)
    return FolderDriver(shared, place, origin={STORAGE_FACT: storage.name}, killed=killed or Flag())
