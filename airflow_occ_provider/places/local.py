"""Drivers on this host, by ``spark-submit`` in client mode."""

from __future__ import annotations

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.places.of_task import Launch, PlacedTask
from airflow_occ_provider.submitters.local_place import LocalPlace


def place_of_task(task: PlacedTask, launch: Launch | None) -> LocalPlace:  # noqa: ARG001
    """Return this host."""
    return LocalPlace(launch)


def place_of_handle(handle: Handle) -> LocalPlace:  # noqa: ARG001
    """Return this host, on which no driver of another one is seen."""
    return LocalPlace()
