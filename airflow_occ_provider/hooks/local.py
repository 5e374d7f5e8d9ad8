"""A place of drivers on this host, by ``spark-submit`` in client mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.staging import offered
from airflow_occ_provider.attempts.submission import (
    IDENTITY_VARIABLE,
    SparkJob,
    Submission,
    private_folder,
)
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import FenceError
from airflow_occ_provider.hooks.launch import Launch
from airflow_occ_provider.hooks.place_drivers import offer_of
from airflow_occ_provider.hooks.places import PlacedTask
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.local_place import LocalPlace
from airflow_occ_provider.submitters.processes import end_survivors


@dataclass(frozen=True)
class LocalDrivers:
    """Drivers on this host, by ``spark-submit`` in client mode.

    :param deploy_mode: as the connection or the task names it.
    """

    deploy_mode: Any = None
    is_remote = False
    site = None

    def refuse(self, site: Site) -> None:
        """Refuse nothing more than any driver's."""

    @contextmanager
    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> Iterator[Submission]:
        """Write what a driver needs into a private folder, for the time of a block."""
        identity = options.get(IDENTITY_KEY, "")
        with private_folder(identity) as folder:
            attempt = AttemptFolder(str(folder))
            with offered(job, options, attempt, without=without, is_private=True) as submission:
                environment = {IDENTITY_VARIABLE: identity}
                yield replace(submission, environment=environment, folder=str(folder))

    def forget(self, identity: str) -> None:
        """Do nothing: the folder is gone with its block."""

    def revoke_unrecorded(self, run: str, lease_ttl_s: float) -> dict[str, list[Handle]]:  # noqa: ARG002
        """End the processes of this host.

        One of another host ends with its task's process.

        :raises FenceError: if one does not end.
        """
        _, alive = end_survivors(run)
        if alive:
            raise FenceError(
                f"processes {', '.join(map(str, alive))} of an earlier try do not end",
                remedy="look what they wait for (a dead mount?), end them, and clear the task",
            )
        return {}

    def submitter(self, launch: Launch) -> FolderDriver:
        """Return the submitter of a command that Spark's hook builds."""
        submission = launch.submission
        folder, limit = AttemptFolder(submission.folder), launch.start_limit.on_worker
        place, offer = LocalPlace(launch), offer_of(submission, folder, limit)
        return FolderDriver(AttemptFolder, place, offer, killed=launch.killed)


def place_of_task(task: PlacedTask, launch: Launch | None) -> LocalPlace:  # noqa: ARG001
    """Return this host."""
    return LocalPlace(launch)


def place_of_handle(handle: Handle) -> LocalPlace:  # noqa: ARG001
    """Return this host, on which no driver of another one is seen."""
    return LocalPlace()
