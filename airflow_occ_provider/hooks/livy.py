"""Drivers as batches of the Livy that an Airflow connection names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from airflow.sdk import BaseHook

from airflow_occ_provider.attempts.start_limit import NO_LIMIT
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError, install_extra
from airflow_occ_provider.hooks.launch import Launch, PlannedJob
from airflow_occ_provider.hooks.staged import StagedDrivers
from airflow_occ_provider.hooks.yarn import addresses_of, yarn_cluster
from airflow_occ_provider.storage.address import parse_table_path
from airflow_occ_provider.storage.report import RunFolder
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_api import LivyConnection
from airflow_occ_provider.submitters.livy_batch import livy_batch
from airflow_occ_provider.submitters.livy_yarn import LivyOnYarn
from airflow_occ_provider.submitters.spark_submit import Flag
from airflow_occ_provider.submitters.yarn.resource_manager import MANAGERS_FIELD, ResourceManager
from airflow_occ_provider.submitters.yarn.submission_conf import protected_conf

_REPORT_PATH = "report_path"
_LISTS = ("files", "py_files", "archives", "jars")
_VALUES = ("driver_memory", "executor_memory", "executor_cores", "num_executors", "proxy_user")
_CONF = {
    "packages": "spark.jars.packages",
    "exclude_packages": "spark.jars.excludes",
    "repositories": "spark.jars.repositories",
    "total_executor_cores": "spark.cores.max",
    "driver_class_path": "spark.driver.extraClassPath",
    "name": "spark.app.name",
}
_REFUSED = {
    "env_vars": ("Livy gives a driver no variables", "set them on Livy's machine"),
    "properties_file": ("Livy does not read a file of the worker", "give its properties in conf"),
    "keytab": ("Livy logs in to Kerberos itself", "leave it out; name the user as proxy_user"),
    "principal": ("Livy logs in to Kerberos itself", "leave it out; name the user as proxy_user"),
    "deploy_mode": (
        "Livy's own configuration decides it",
        "remove it, also from the connection's extra",
    ),
}


_OF_LIVY = ("spark.master", "spark.submit.deployMode")


@dataclass
class LivyService:
    """Runs drivers as batches of Livy.

    :param conn_id: connection of Livy.
    :param managers: addresses of the ResourceManagers of the YARN in which Livy runs them, empty if
        they are processes of Livy's machine; ``None`` for those that the connection names.
    :param listing_s: see ``submitters.follower``.
    """

    conn_id: str
    managers: Sequence[str] | None = None
    listing_s: float = 0.0
    master = "livy://"

    def refuse(self, planned: PlannedJob) -> None:
        """Refuse arguments that would not reach the driver.

        :raises ConfigurationError: naming the argument.
        """
        spark = planned.spark
        given = {"env_vars": planned.env_vars, "properties_file": spark._properties_file}
        given |= {name: spark._connection[name] for name in ("keytab", "principal", "deploy_mode")}
        for name, (reason, remedy) in _REFUSED.items():
            if given[name]:
                raise ConfigurationError(
                    name, f"{reason}, and {self.conn_id!r} is a connection of Livy", remedy=remedy
                )
        conf = _conf(spark)
        for key in _OF_LIVY:
            if key in conf:
                raise ConfigurationError(
                    f"conf {key}", "Livy's own configuration decides it", remedy="remove it"
                )
        livy_batch("", (), conf)
        if addresses := self._addresses:
            _ = ResourceManager(addresses), protected_conf("", conf, submission="")
        livy_hook(self.conn_id)

    def folder(self, table: str, identity: str) -> RunFolder:
        """Return the place of a task run's input and reports.

        :raises ConfigurationError: if there is none.
        """
        return RunFolder.of(table, identity, self._place)

    def storage_connection(self, url: str, table: str, table_conn_id: str | None) -> str | None:
        """Return the connection of the table's storage if a file lies there, too."""
        return table_conn_id if parse_table_path(url)[0] == parse_table_path(table)[0] else None

    def submitter(
        self, drivers: StagedDrivers, killed: Flag, launch: Launch | None = None
    ) -> Livy | LivyOnYarn:
        """Return what runs one submission, or follows batches of earlier processes."""
        addresses = self._addresses
        livy = Livy(
            livy_hook(self.conn_id),
            _batch(launch.spark, launch.submission) if launch else {},
            launch.submission.report if launch else "",
            report_of=lambda key, attempt: drivers.folder(key).report(attempt),
            open_report=drivers.open_report,
            is_on_server=not addresses,
            origin=drivers.origin,
            discard=drivers.remove_input,
            killed=killed,
        )
        if not addresses:
            return livy
        cluster = yarn_cluster(addresses, Flag(), self.listing_s)
        cluster.start_limit = launch.start_limit if launch else NO_LIMIT
        livy.origin = {**livy.origin, "resource_managers": list(cluster.manager.addresses)}
        return LivyOnYarn(livy, cluster)

    @cached_property
    def _addresses(self) -> list[str]:
        return addresses_of(self.conn_id) if self.managers is None else list(self.managers)

    @cached_property
    def _place(self) -> str | None:
        """The place of the folders that the connection names, if any."""
        return BaseHook.get_connection(self.conn_id).extra_dejson.get(_REPORT_PATH)


def livy_follower(handle: Handle, killed: Flag, listing_s: float = 0.0) -> Livy | LivyOnYarn:
    """Return a submitter that follows a batch of another process.

    :param listing_s: see ``submitters.follower``.
    """
    facts = handle.facts
    service = LivyService(facts["conn_id"], facts.get("resource_managers", ()), listing_s)
    drivers = StagedDrivers(service, facts["table"], facts["storage_conn_id"])
    return service.submitter(drivers, killed)


def livy_hook(conn_id: str) -> LivyConnection:
    """Return Airflow's hook for Livy, which has looked up its connection.

    A signal handler makes requests, too: it must not wait for Airflow to answer the code that it has
    interrupted. The hook sends the extra as headers of HTTP, but not what is for this provider.

    :raises ConfigurationError: if its provider is not installed.
    :raises AirflowNotFoundException: if there is no such connection.
    """
    try:
        from airflow.providers.apache.livy.hooks.livy import LivyHook
    except ImportError as error:
        raise ConfigurationError(
            "conn_id",
            f"{conn_id!r} is a connection of Livy, whose provider is not installed",
            remedy=f"{install_extra('livy')} on the workers and triggerers",
        ) from error
    hook = LivyHook(livy_conn_id=conn_id)
    connection = copy(hook.get_connection(conn_id))
    ours = (_REPORT_PATH, MANAGERS_FIELD)
    extra = {key: value for key, value in connection.extra_dejson.items() if key not in ours}
    connection.extra = json.dumps(extra)
    vars(hook)["get_connection"] = lambda _: connection
    return cast("LivyConnection", hook)


def _batch(spark: Any, submission: Submission) -> dict[str, Any]:
    """Return the request for a batch, by the arguments of ``SparkSubmitOperator``."""
    lists = {name: _names(getattr(spark, f"_{name}")) for name in _LISTS}
    values = {name: getattr(spark, f"_{name}") for name in _VALUES}
    settings = {**lists, **values, "queue": spark._connection["queue"]}
    given = {name: value for name, value in settings.items() if value}
    return livy_batch(submission.application, submission.arguments, _conf(spark), **given)


def _conf(spark: Any) -> dict[str, object]:
    given = {key: getattr(spark, f"_{name}") for name, key in _CONF.items()}
    return {**spark._conf, **{key: value for key, value in given.items() if value}}


def _names(given: str | None) -> list[str]:
    return [one.strip() for one in (given or "").split(",") if one.strip()]
