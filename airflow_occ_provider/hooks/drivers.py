"""Where the drivers of a task run: chosen by its Spark connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from airflow_occ_provider.attempts.driver import end_earlier
from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.staging import offered
from airflow_occ_provider.attempts.submission import (
    IDENTITY_VARIABLE,
    SparkJob,
    Submission,
    private_folder,
)
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.launch import Launch
from airflow_occ_provider.hooks.place_drivers import PlaceDrivers, offer_of
from airflow_occ_provider.hooks.places import PlacedTask, place_type
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.spark_submit import SparkSubmit

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

    def follower(self, killed: Flag) -> Submitter:
        """Return what finds drivers of earlier processes that were not recorded."""


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
        """
        submitter = self.follower(Flag())
        end_earlier(submitter, partial(submitter.find, run), "a try whose record is lost")
        return {}

    def submitter(self, launch: Launch) -> SparkSubmit:
        """Return the submitter of a command that Spark's hook builds."""
        submission = launch.submission
        offer = offer_of(submission, AttemptFolder(submission.folder))
        return SparkSubmit(launch.command(), launch.environment, offer, launch.killed)

    def follower(self, killed: Flag) -> SparkSubmit:
        """Return what finds processes of this host."""
        return SparkSubmit(killed=killed)


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
