"""Makes submitters that follow drivers of earlier processes."""

from __future__ import annotations

from collections.abc import Callable

from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.kubernetes import pod_place
from airflow_occ_provider.hooks.place_drivers import follower_at
from airflow_occ_provider.hooks.via import StartedPlace
from airflow_occ_provider.hooks.yarn import yarn_place
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.kubernetes.place import KubernetesPlace
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.spark_submit import SparkSubmit
from airflow_occ_provider.submitters.yarn.place import YarnPlace

_PLACES: dict[str, Callable[[Handle], Place]] = {
    KubernetesPlace.name: pod_place,
    YarnPlace.name: yarn_place,
    StartedPlace.name: lambda _: StartedPlace(),
}


def follower(handle: Handle, killed: Flag | None = None) -> Submitter:
    """Return a submitter that polls, reads and ends a driver, and starts none.

    :param handle: of the driver; it names the submitter that started it.
    :param killed: set when the task is asked to stop.
    :raises ConfigurationError: if this release has no such submitter.
    """
    if handle.submitter == SparkSubmit.name:
        return SparkSubmit()
    place_of = _PLACES.get(handle.submitter)
    if place_of:
        return follower_at(place_of(handle), handle, killed or Flag())
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
