"""Drivers as batches of the Livy that an Airflow connection names."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, cast

from airflow.sdk import BaseHook

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.staging import staged
from airflow_occ_provider.attempts.submission import SparkJob, Submission
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.storage.address import parse_table_path
from airflow_occ_provider.storage.report import Report, RunFolder
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_api import LivyConnection
from airflow_occ_provider.submitters.livy_batch import livy_batch
from airflow_occ_provider.submitters.spark_submit import Flag

ELSEWHERE = Site(Source("the configuration of Livy's machine", ()))
"""The site of a driver whose files this machine does not have; the driver proves it itself."""

_MASTER = "livy://"
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


@dataclass
class LivyDrivers:
    """The drivers of one task, as batches of Livy.

    :param conn_id: connection of Livy.
    :param table: base path of the table that they write.
    :param storage_conn_id: connection of its storage.
    """

    conn_id: str
    table: str
    storage_conn_id: str | None = None

    def refuse(self, spark: Any, variables: Mapping[str, str]) -> None:
        """Refuse arguments that would not reach the driver.

        :param spark: Spark's hook with the user's arguments.
        :param variables: the environment variables of the task.
        :raises ConfigurationError: naming the argument.
        """
        given = {"env_vars": variables, "properties_file": spark._properties_file}
        given |= {name: spark._connection[name] for name in ("keytab", "principal", "deploy_mode")}
        for name, (reason, remedy) in _REFUSED.items():
            if given[name]:
                raise ConfigurationError(
                    name, f"{reason}, and {self.conn_id!r} is a connection of Livy", remedy=remedy
                )
        livy_batch("", (), _conf(spark))
        _ = livy_hook(self.conn_id), self.folder("")

    def folder(self, identity: str) -> RunFolder:
        """Return the folder of a task run's input and reports.

        :raises ConfigurationError: if there is no place for it.
        """
        folder = RunFolder.of(self.table, identity, self._place)
        conn_id = _same_storage(folder.url, self.table, self.storage_conn_id)
        return RunFolder(folder.url, file_system=storage_of(folder.url, conn_id))

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write a driver's input into the folder of its task run."""
        folder = self.folder(options.get(IDENTITY_KEY, ""))
        return staged(job, options, folder, secrets.token_hex(4), without=without)

    def submitter(self, spark: Any, submission: Submission, killed: Flag) -> Livy:
        """Return the submitter of one batch.

        :param spark: Spark's hook with the attempt's arguments.
        """
        return self._livy(killed, batch=_batch(spark, submission), report=submission.report)

    def follower(self, killed: Flag) -> Livy:
        """Return a submitter that follows batches of earlier processes."""
        return self._livy(killed)

    def _livy(self, killed: Flag, **more: Any) -> Livy:
        origin = {
            "conn_id": self.conn_id,
            "table": self.table,
            "storage_conn_id": self.storage_conn_id,
        }
        return Livy(
            livy_hook(self.conn_id),
            open_report=partial(_open_report, self.table, self.storage_conn_id),
            is_on_server=True,
            origin=origin,
            discard=partial(_remove_input, self.table, self.storage_conn_id),
            killed=killed,
            **more,
        )

    @cached_property
    def _place(self) -> str | None:
        """The place of the folders that the connection names, if any."""
        return BaseHook.get_connection(self.conn_id).extra_dejson.get(_REPORT_PATH)


def livy_drivers(task: Any, spark: Any) -> LivyDrivers | None:
    """Return what runs a task's drivers if its connection is one of Livy.

    :param spark: Spark's hook, which has read the connection.
    """
    if not str(spark._connection["master"]).startswith(_MASTER):
        return None
    return LivyDrivers(task._conn_id, task.table, task.storage_conn_id)


def livy_follower(handle: Handle, killed: Flag) -> Livy:
    """Return a submitter that follows a batch of another process."""
    facts = handle.facts
    return LivyDrivers(facts["conn_id"], facts["table"], facts["storage_conn_id"]).follower(killed)


def livy_hook(conn_id: str) -> LivyConnection:
    """Return Airflow's hook for Livy, which looks up its connection once.

    A signal handler makes requests, too: it must not wait for Airflow to answer the code that it has
    interrupted.

    :raises ConfigurationError: if its provider is not installed.
    """
    try:
        from airflow.providers.apache.livy.hooks.livy import LivyHook
    except ImportError as error:
        raise ConfigurationError(
            "conn_id",
            f"{conn_id!r} is a connection of Livy, whose provider is not installed",
            remedy="install airflow-occ-provider[livy] on the workers and triggerers",
        ) from error
    hook = LivyHook(livy_conn_id=conn_id)
    vars(hook)["get_connection"] = cache(hook.get_connection)
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


def _open_report(table: str, storage_conn_id: str | None, url: str) -> Report:
    conn_id = _same_storage(url, table, storage_conn_id)
    return Report(url, file_system=storage_of(url, conn_id))


def _remove_input(table: str, storage_conn_id: str | None, report: str) -> None:
    url, name = posixpath.split(report)
    if name:
        conn_id = _same_storage(url, table, storage_conn_id)
        RunFolder(url, file_system=storage_of(url, conn_id)).remove(name.removesuffix(".jsonl"))


def _same_storage(url: str, table: str, storage_conn_id: str | None) -> str | None:
    """Return the connection of the table's storage if a file lies there, too."""
    is_same = parse_table_path(url)[0] == parse_table_path(table)[0]
    return storage_conn_id if is_same else None
