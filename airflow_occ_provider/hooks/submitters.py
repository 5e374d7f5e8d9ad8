"""Makes submitters that follow drivers of earlier processes."""

from __future__ import annotations

from typing import BinaryIO

from airflow.sdk import BaseHook

from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.livy import livy_follower
from airflow_occ_provider.storage.remote_file import open_remote
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.spark_submit import Flag, SparkSubmit
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.resource_manager import ResourceManager

_MANAGERS = "yarn_resourcemanager_webapp_address"
_LOG_FOLDER = "yarn.nodemanager.remote-app-log-dir"
_DEFAULT_STORAGE = "fs.defaultFS"


def follower(handle: Handle, killed: Flag | None = None) -> Submitter:
    """Return a submitter that polls, reads and ends a driver, and starts none.

    :param handle: of the driver; it names the submitter that started it.
    :param killed: set when the task is asked to stop.
    :raises ConfigurationError: if this release has no such submitter.
    """
    if handle.submitter == SparkSubmit.name:
        return SparkSubmit()
    if handle.submitter == YarnCluster.name:
        manager = ResourceManager(handle.facts["resource_managers"])
        logs = AggregatedLogs(manager)
        return YarnCluster(manager, open_log=logs, killed=killed or Flag())
    if handle.submitter == Livy.name:
        return livy_follower(handle, killed or Flag())
    raise ConfigurationError(
        "submitter",
        f"{handle} was started by {handle.submitter!r}, which this release does not know",
        remedy="run the task with the release that started the driver",
    )


def service_of(handle: Handle) -> str:
    """Return the name of what answers calls about a driver: one for each cluster."""
    facts = handle.facts
    return " ".join(
        (handle.submitter, facts.get("conn_id", ""), *sorted(facts.get("resource_managers", ())))
    )


def resource_manager(conn_id: str) -> ResourceManager:
    """Return the ResourceManager that a Spark connection names.

    :raises ConfigurationError: if it names none.
    """
    addresses = str(BaseHook.get_connection(conn_id).extra_dejson.get(_MANAGERS) or "")
    if not addresses:
        raise ConfigurationError(
            f"connection {conn_id!r}",
            f"cluster mode on YARN, and no {_MANAGERS} in its extra",
            remedy=f'add it, such as {{"{_MANAGERS}": "http://rm1:8088,http://rm2:8088"}}: the '
            "driver is followed and ended through it",
        )
    return ResourceManager([one.strip() for one in addresses.split(",")])


class AggregatedLogs:
    """Opens the files into which a cluster's nodes aggregate the logs of containers.

    :param manager: knows the folder.
    """

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._folder = ""

    def __call__(self, path: str) -> BinaryIO:
        """Open a file by its path below the folder.

        :raises OSError: if it is not there, or its storage cannot be read from here.
        """
        if not self._folder:
            folder = self._manager.setting(_LOG_FOLDER).rstrip("/")
            storage = "" if "://" in folder else self._manager.setting(_DEFAULT_STORAGE).rstrip("/")
            self._folder = f"{storage}{folder}"
        return open_remote(f"{self._folder}/{path}")
