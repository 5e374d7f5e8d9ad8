"""Drivers of services that read their input from a storage."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import ELSEWHERE
from airflow_occ_provider.attempts.staging import staged
from airflow_occ_provider.attempts.submission import SparkJob, Submission
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.hooks.launch import Launch, PlannedJob
from airflow_occ_provider.storage.report import Report, RunFolder
from airflow_occ_provider.submitters.spark_submit import Flag


class StagingService(Protocol):
    """A service that runs drivers, and reads their input from a storage.

    :param conn_id: its connection.
    """

    conn_id: str

    def refuse(self, planned: PlannedJob) -> None:
        """Refuse arguments that would not reach the driver.

        :raises ConfigurationError: naming the argument.
        """

    def folder(self, table: str, identity: str) -> RunFolder:
        """Return the place of a task run's input and reports.

        :raises ConfigurationError: if there is none.
        """

    def storage_connection(self, url: str, table: str, table_conn_id: str | None) -> str | None:
        """Return the connection that opens a file.

        :param table_conn_id: the connection of the table's storage.
        """

    def submitter(self, drivers: StagedDrivers, killed: Flag, launch: Launch | None = None) -> Submitter:
        """Return what runs a submission, or follows earlier drivers if there is none."""


@dataclass(frozen=True, slots=True)
class StagedDrivers:
    """The drivers of one task, by a service elsewhere.

    :param table: base path of the table that they write.
    :param storage_conn_id: connection of its storage.
    """

    service: StagingService
    table: str
    storage_conn_id: str | None = None
    deploy_mode = "cluster"  # they find their files as in a cluster
    is_remote = True
    site = ELSEWHERE

    def refuse(self, planned: PlannedJob) -> None:
        """Refuse arguments that would not reach the driver, and files without a place."""
        self.service.refuse(planned)
        self.folder("")

    def folder(self, identity: str) -> RunFolder:
        """Return the folder of a task run's input and reports.

        :raises ConfigurationError: if there is no place for it.
        """
        folder = self.service.folder(self.table, identity)
        return replace(folder, file_system=self.file_system(folder.url))

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write a driver's input into the folder of its task run."""
        folder = self.folder(options.get(IDENTITY_KEY, ""))
        return staged(job, options, folder, secrets.token_hex(4), without=without)

    def forget(self, identity: str) -> None:
        """Remove the reports of a task run's drivers, and what is left of their input."""
        self.folder(identity).remove()

    def submitter(self, launch: Launch) -> Submitter:
        """Return the submitter of one driver."""
        return self.service.submitter(self, launch.killed, launch)

    def follower(self, killed: Flag) -> Submitter:
        """Return a submitter that follows drivers of earlier processes."""
        return self.service.submitter(self, killed)

    @property
    def origin(self) -> dict[str, str | None]:
        """Facts of a handle, by which another process finds its driver's files."""
        return {
            "conn_id": self.service.conn_id,
            "table": self.table,
            "storage_conn_id": self.storage_conn_id,
        }

    def open_report(self, url: str) -> Report:
        """Return the report at a URL."""
        return Report(url, file_system=self.file_system(url))

    def remove_input(self, report: str) -> bool:
        """Remove the input of the driver that has a report; whether it is gone."""
        url, name = posixpath.split(report)
        folder = RunFolder(url, file_system=self.file_system(url)) if name else None
        return bool(folder and folder.remove(name.removesuffix(".jsonl")))

    def file_system(self, url: str) -> Any:
        """Return the file system of a file, by the service's choice of a connection."""
        return storage_of(url, self.service.storage_connection(url, self.table, self.storage_conn_id))


def staged_follower(service: Callable[[str], StagingService], handle: Handle, killed: Flag) -> Submitter:
    """Return a submitter that follows a driver of another process."""
    facts = handle.facts
    drivers = StagedDrivers(service(facts["conn_id"]), facts["table"], facts["storage_conn_id"])
    return drivers.follower(killed)
