"""Drivers in the YARN that a Spark connection names."""

from __future__ import annotations

from airflow.sdk import BaseHook

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.places.of_task import Launch, PlacedTask
from airflow_occ_provider.submitters.yarn_place import (
    MANAGERS_FIELD,
    ResourceManager,
    YarnAccess,
    YarnPlace,
)


def place_of_task(task: PlacedTask, launch: Launch | None) -> YarnPlace:
    """Return the YARN that a task's connection names."""
    return YarnPlace(resource_manager(task.conn_id), launch, launch.conf if launch else {})


def place_of_handle(handle: Handle) -> YarnPlace:
    """Return where a driver of another process runs.

    The task may have moved to another cluster since.
    """
    return YarnPlace(ResourceManager(handle.facts["resource_managers"], YarnAccess.of(handle.facts)))


def resource_manager(conn_id: str) -> ResourceManager:
    """Return the ResourceManager that a Spark connection names.

    :raises ConfigurationError: if it names none.
    """
    extra = BaseHook.get_connection(conn_id).extra_dejson
    text = str(extra.get(MANAGERS_FIELD) or "")
    addresses = [address.strip() for address in text.split(",")] if text else []
    if not addresses:
        raise ConfigurationError(
            f"connection {conn_id!r}",
            f"cluster mode on YARN, and no {MANAGERS_FIELD} in its extra",
            remedy=f'add it, such as {{"{MANAGERS_FIELD}": "http://rm1:8088,http://rm2:8088"}}: the '
            "driver's state is asked there, and it is killed there",
        )
    return ResourceManager(addresses, YarnAccess.of(extra))
