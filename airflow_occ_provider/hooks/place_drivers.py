"""A task's drivers in any place: each has a folder by which its attempt leads it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.staging import offered
from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    private_folder,
    remove_leftovers,
)
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.driver.attempt import LIFE_S
from airflow_occ_provider.driver.contract import PAYLOAD
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.hooks.launch import Launch
from airflow_occ_provider.hooks.via import StartedPlace
from airflow_occ_provider.storage.attempt_folder import AttemptFolder, run_folder
from airflow_occ_provider.storage.shared_folders import shared_folder
from airflow_occ_provider.submitters.attempt_files import Folder
from airflow_occ_provider.submitters.driver_start import Offer
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.place import Place

_STORAGE = "storage_conn_id"


@dataclass(frozen=True)
class PlaceDrivers:
    """The drivers of one task, in one place.

    :param place: returns where one submission runs; of ``None``, where drivers of the task may have
        been started by other processes.
    :param table: base path of the table that they write: their folders are beside it.
    :param storage_conn_id: connection of its storage.
    """

    place: Callable[[Launch | None], Place]
    table: str
    storage_conn_id: str | None = None
    deploy_mode: Any = "cluster"
    is_remote = True

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
        run_folder(self.table, "")

    @contextmanager
    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> Iterator[Submission]:
        """Write what a driver needs into the folder of a new attempt.

        What submits it has a private folder of this host.
        """
        identity = options.get(IDENTITY_KEY, "")
        folder = f"{run_folder(self.table, identity)}/{secrets.token_hex(4)}"
        offer = offered(job, options, open_folder(folder, self.storage_conn_id), without=without)
        with private_folder(identity) as private, offer as submission:
            yield replace(submission, folder=str(private))

    def forget(self, identity: str) -> None:
        """Remove the folders of a task run's attempts, all of which have ended.

        Its place removes what it has kept of them.
        """
        remove_leftovers(identity)
        self._others.forget(identity)
        open_folder(run_folder(self.table, identity), self.storage_conn_id).clear()

    def revoke_unrecorded(self, run: str, lease_ttl_s: float) -> dict[str, list[Handle]]:
        """Revoke all drivers of a task run whose record is lost.

        Where they were submitted is unknown. So only the folder proves their ends.

        :param run: the beginning of the run's identities.
        :param lease_ttl_s: of a lease on which their commits may depend.
        :return: those that were granted, by the identities that have folders.
        """
        submitter = folder_driver(StartedPlace(), self.storage_conn_id, Flag())
        life_s, drivers = max(LIFE_S, lease_ttl_s), {}
        runs = open_folder(run_folder(self.table, ""), self.storage_conn_id)
        for identity in sorted(name for name in runs.entries() if name.startswith(run)):
            url = run_folder(self.table, identity)
            attempts = open_folder(url, self.storage_conn_id).entries()
            folders = (open_folder(f"{url}/{name}", self.storage_conn_id) for name in sorted(attempts))
            handles = (submitter.revoke_unrecorded(folder, life_s) for folder in folders)
            drivers[identity] = list(filter(None, handles))
        return drivers

    def submitter(self, launch: Launch) -> FolderDriver:
        """Return the submitter of one driver."""
        submission = launch.submission
        folder = open_folder(submission.arguments[0], self.storage_conn_id)
        offer = offer_of(submission, folder, launch.start_limit.in_cluster)
        return folder_driver(self.place(launch), self.storage_conn_id, launch.killed, offer)


def open_folder(url: str, storage_conn_id: str | None) -> AttemptFolder:
    """Return the folder at a URL.

    :param storage_conn_id: connection of its storage; by default the worker's own credentials.
    """
    return AttemptFolder(url, file_system=storage_of(url, storage_conn_id))


def offer_of(submission: Submission, folder: AttemptFolder, limit: timedelta = timedelta.max) -> Offer:
    """Return a driver's work in its folder.

    :param limit: the longest wait for a driver.
    """
    payload = submission.content[PAYLOAD]
    return Offer(folder, submission.application, payload, limit, submission.lease_ttl_s)


def follower_at(place: Place, handle: Handle, killed: Flag) -> FolderDriver:
    """Return a submitter that follows a driver of another process."""
    return folder_driver(place, handle.facts.get(_STORAGE), killed)


def folder_driver(
    place: Place, storage_conn_id: str | None, killed: Flag, offer: Offer | None = None
) -> FolderDriver:
    """Return a submitter in a place.

    :param storage_conn_id: connection of the storage of the drivers' folders.
    :param offer: the work; ``None`` to follow and end drivers of earlier processes.
    """

    def opened(url: str) -> Folder:
        return shared_folder(url, storage_conn_id, partial(open_folder, storage_conn_id=storage_conn_id))

    return FolderDriver(opened, place, offer, {_STORAGE: storage_conn_id}, killed)
