"""Makes submitters that follow drivers of earlier processes."""

from __future__ import annotations

from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.hooks.place_drivers import follower_at
from airflow_occ_provider.hooks.places import place_type
from airflow_occ_provider.submitters.flag import Flag


def follower(handle: Handle, killed: Flag | None = None) -> Submitter:
    """Return a submitter that polls, reads and ends a driver, and starts none.

    :param handle: of the driver; it names the submitter that started it.
    :param killed: set when the task is asked to stop.
    :raises ConfigurationError: if no installed package has its place.
    """
    place = place_type(handle.submitter, "submitter", str(handle)).place_of_handle(handle)
    return follower_at(place, handle, killed or Flag())


def service_of(handle: Handle) -> str:
    """Return the name of what answers calls about a driver: one for each cluster."""
    facts = handle.facts
    conn_id = facts.get("conn_id") or facts.get("storage_conn_id") or ""
    return " ".join((handle.submitter, conn_id, *sorted(facts.get("resource_managers", ()))))
