"""Makes submitters that follow drivers of earlier processes."""

from __future__ import annotations

from collections.abc import Callable

from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.kubernetes import kubernetes_follower
from airflow_occ_provider.hooks.place_drivers import follower_at
from airflow_occ_provider.hooks.via import StartedPlace
from airflow_occ_provider.hooks.yarn import place_of
from airflow_occ_provider.submitters.kubernetes.place import KubernetesPlace
from airflow_occ_provider.submitters.spark_submit import Flag, SparkSubmit
from airflow_occ_provider.submitters.yarn.place import YarnPlace

_FOLLOWERS: dict[str, Callable[[Handle, Flag], Submitter]] = {
    SparkSubmit.name: lambda _, __: SparkSubmit(),
    KubernetesPlace.name: kubernetes_follower,
    YarnPlace.name: lambda handle, killed: follower_at(place_of(handle), handle, killed),
    StartedPlace.name: lambda handle, killed: follower_at(StartedPlace(), handle, killed),
}


def follower(handle: Handle, killed: Flag | None = None) -> Submitter:
    """Return a submitter that polls, reads and ends a driver, and starts none.

    :param handle: of the driver; it names the submitter that started it.
    :param killed: set when the task is asked to stop.
    :raises ConfigurationError: if this release has no such submitter.
    """
    make = _FOLLOWERS.get(handle.submitter)
    if make:
        return make(handle, killed or Flag())
    raise ConfigurationError(
        "submitter",
        f"{handle} was started by {handle.submitter!r}, which this release does not know",
        remedy="run the task with the release that started the driver",
    )


def service_of(handle: Handle) -> str:
    """Return the name of what answers calls about a driver: one for each cluster."""
    facts = handle.facts
    conn_id = facts.get("conn_id") or facts.get("storage_conn_id") or ""
    return " ".join((handle.submitter, conn_id, *sorted(facts.get("resource_managers", ()))))
