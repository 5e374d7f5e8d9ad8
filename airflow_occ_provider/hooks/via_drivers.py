"""Drivers that another operator starts: each has a folder beside the table."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import ELSEWHERE
from airflow_occ_provider.attempts.staging import offered
from airflow_occ_provider.attempts.submission import SparkJob, Submission
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.driver.contract import PAYLOAD
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.hooks.launch import Launch, PlannedJob
from airflow_occ_provider.storage.attempt_folder import AttemptFolder, run_folder
from airflow_occ_provider.submitters.folder_driver import FolderDriver, Offer, Start
from airflow_occ_provider.submitters.spark_submit import Flag


@dataclass(frozen=True, slots=True)
class ViaDrivers:
    """The drivers of one task, which an operator starts.

    :param start: has a driver started by the operator.
    :param table: base path of the table that they write.
    :param storage_conn_id: connection of its storage.
    """

    start: Start
    table: str
    storage_conn_id: str | None = None
    deploy_mode = "cluster"  # they find their files as in a cluster
    is_remote = True
    site = ELSEWHERE

    def refuse(self, planned: PlannedJob) -> None:  # noqa: ARG002
        """Refuse arguments of the operator, and a table beside which there is no place.

        :raises ConfigurationError: with the first of them.
        """
        self.start.refuse()
        run_folder(self.table, "")

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write what a driver needs into the folder of a new attempt."""
        run = run_folder(self.table, options.get(IDENTITY_KEY, ""))
        url = f"{run}/{secrets.token_hex(4)}"
        return offered(job, options, open_folder(url, self.storage_conn_id), without=without)

    def forget(self, identity: str) -> None:
        """Remove the folders of a task run's attempts, all of which have ended."""
        open_folder(run_folder(self.table, identity), self.storage_conn_id).clear()

    def submitter(self, launch: Launch) -> FolderDriver:
        """Return the submitter of one driver."""
        submission = launch.submission
        folder = open_folder(submission.arguments[0], self.storage_conn_id)
        payload, limit = submission.content[PAYLOAD], launch.start_limit.in_cluster
        offer = Offer(folder, submission.application, payload, self.start, limit)
        return _folder_driver(self.storage_conn_id, launch.killed, offer)

    def follower(self, killed: Flag) -> FolderDriver:
        """Return what finds no driver: one that was not recorded does nothing."""
        return _folder_driver(self.storage_conn_id, killed)


def via_follower(handle: Handle, killed: Flag) -> Submitter:
    """Return a submitter that follows a driver of another process."""
    return _folder_driver(handle.facts.get("storage_conn_id"), killed)


def open_folder(url: str, storage_conn_id: str | None) -> AttemptFolder:
    """Return the folder at a URL.

    :param storage_conn_id: connection of its storage; by default the worker's own credentials.
    """
    return AttemptFolder(url, file_system=storage_of(url, storage_conn_id))


def _folder_driver(
    storage_conn_id: str | None, killed: Flag, offer: Offer | None = None
) -> FolderDriver:
    origin = {"storage_conn_id": storage_conn_id}
    return FolderDriver(lambda url: open_folder(url, storage_conn_id), offer, origin, killed)
