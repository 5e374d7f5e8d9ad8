"""Drivers in the YARN that a Spark connection names."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO
from weakref import WeakValueDictionary

from airflow.sdk import BaseHook

from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    prepared,
    remove_leftovers,
)
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.launch import Launch, PlannedJob
from airflow_occ_provider.storage.remote_file import open_remote
from airflow_occ_provider.submitters.spark_submit import Flag
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.listing import RunningApplications
from airflow_occ_provider.submitters.yarn.resource_manager import MANAGERS_FIELD, ResourceManager
from airflow_occ_provider.submitters.yarn.submission_conf import protected_conf

_LOG_FOLDER = "yarn.nodemanager.remote-app-log-dir"
_DEFAULT_STORAGE = "fs.defaultFS"
_registry = threading.Lock()
# A listing lives as long as a follower refers to it.
_listings: WeakValueDictionary[object, RunningApplications] = WeakValueDictionary()


@dataclass
class YarnDrivers:
    """The drivers of one task, in YARN's cluster mode.

    :param conn_id: the Spark connection.
    """

    conn_id: str
    deploy_mode = "cluster"
    is_remote = True
    site = None

    def refuse(self, planned: PlannedJob) -> None:
        """Refuse a job that YARN would repeat, and a missing ResourceManager."""
        _ = self._manager, protected_conf("", planned.job.conf, submission="")

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write the input to a private file, which Spark sends along."""
        return prepared(job, options, without=without, is_remote=True)

    def forget(self, identity: str) -> None:
        """Remove what a killed worker left of their input; YARN removes its own files."""
        remove_leftovers(identity)

    def submitter(self, launch: Launch) -> YarnCluster:
        """Return the submitter of a command that Spark's hook builds."""
        spark, manager = launch.spark, self._manager
        spark._files = ",".join(filter(None, (spark._files, *launch.submission.files)))
        logs, environment = AggregatedLogs(manager), launch.environment
        arguments = (manager, launch.command_with, spark._conf, environment, logs, launch.killed)
        return YarnCluster(*arguments, start_limit=launch.start_limit)

    def follower(self, killed: Flag) -> YarnCluster:
        """Return what finds applications of earlier processes."""
        return YarnCluster(self._manager, killed=killed)

    @cached_property
    def _manager(self) -> ResourceManager:
        return resource_manager(self.conn_id)


def yarn_follower(handle: Handle, killed: Flag, listing_s: float = 0.0) -> YarnCluster:
    """Return a submitter that follows an application of another process.

    :param listing_s: see ``submitters.follower``.
    """
    return yarn_cluster(handle.facts["resource_managers"], killed, listing_s)


def yarn_cluster(addresses: Sequence[str], killed: Flag, listing_s: float = 0.0) -> YarnCluster:
    """Return a submitter that follows applications and starts none.

    :param addresses: of the ResourceManagers.
    :param listing_s: see ``submitters.follower``.
    """
    manager = ResourceManager(addresses)
    running = _running(manager, listing_s) if listing_s else None
    return YarnCluster(manager, open_log=AggregatedLogs(manager), killed=killed, running=running)


def _running(manager: ResourceManager, listing_s: float) -> RunningApplications:
    key = (tuple(manager.addresses), listing_s)
    with _registry:
        shared = _listings.get(key)
        if shared is None:
            shared = _listings[key] = RunningApplications(manager, listing_s)
        return shared


def resource_manager(conn_id: str) -> ResourceManager:
    """Return the ResourceManager that a Spark connection names.

    :raises ConfigurationError: if it names none.
    """
    addresses = addresses_of(conn_id)
    if not addresses:
        raise ConfigurationError(
            f"connection {conn_id!r}",
            f"cluster mode on YARN, and no {MANAGERS_FIELD} in its extra",
            remedy=f'add it, such as {{"{MANAGERS_FIELD}": "http://rm1:8088,http://rm2:8088"}}: the '
            "driver is followed and ended through it",
        )
    return ResourceManager(addresses)


def addresses_of(conn_id: str) -> list[str]:
    """Return the addresses of the ResourceManagers that a connection names."""
    given = str(BaseHook.get_connection(conn_id).extra_dejson.get(MANAGERS_FIELD) or "")
    return [one.strip() for one in given.split(",")] if given else []


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
