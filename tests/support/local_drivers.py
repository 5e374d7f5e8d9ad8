"""Drivers that are processes of this host, started by any command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.local_place import LocalPlace
from airflow_occ_provider.submitters.processes import DriverProcess
from airflow_occ_provider.submitters.task_drivers import TaskDrivers


@dataclass(frozen=True)
class Launched:
    """A command in place of that of a task."""

    words: Sequence[str]
    environment: Mapping[str, str]

    def command(self) -> Sequence[str]:
        """Return the command line."""
        return self.words


def local_drivers() -> TaskDrivers:
    """Return the drivers of a task in client mode."""
    return TaskDrivers(LocalPlace, table="")


def local_driver(
    words: Sequence[str], environment: Mapping[str, str], submission: Submission
) -> FolderDriver:
    """Return the submitter of a command.

    :param environment: with the identity of a task run.
    """
    return FolderDriver(AttemptFolder, LocalPlace(Launched(words, environment)), submission)


def handle_of(process: DriverProcess, identity: str = "") -> Handle:
    """Return the handle of a driver whose folder is gone."""
    facts = {"identity": identity, "folder": "/not/there", "nonce": "n", "payload": "p"}
    return Handle(LocalPlace.name, str(process), {**process.facts(), **facts})
