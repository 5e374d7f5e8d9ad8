"""Drivers as job runs of EMR Serverless, by the AWS connection of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow.sdk import BaseHook

from airflow_occ_provider.errors import ConfigurationError, install_extra
from airflow_occ_provider.hooks.launch import Launch, PlannedJob
from airflow_occ_provider.hooks.staged import StagedDrivers
from airflow_occ_provider.storage.address import parse_table_path
from airflow_occ_provider.storage.remote_file import open_remote
from airflow_occ_provider.storage.report import RunFolder
from airflow_occ_provider.submitters.emr_serverless import EmrServerless
from airflow_occ_provider.submitters.emr_serverless_job import (
    S3,
    EmrApplication,
    job_run_request,
    spark_properties,
)
from airflow_occ_provider.submitters.spark_submit import Flag

_SERVICE = "emr-serverless"
_VARIABLE = "spark.emr-serverless.driverEnv."
# A call may take 45 s, and is repeated twice if its answer is lost.
_CONNECT_S, _READ_S, _CALLS = 5, 40, 3
_CONF = {
    "jars": "spark.jars",
    "files": "spark.files",
    "py_files": "spark.submit.pyFiles",
    "archives": "spark.archives",
    "packages": "spark.jars.packages",
    "exclude_packages": "spark.jars.excludes",
    "repositories": "spark.jars.repositories",
    "driver_class_path": "spark.driver.extraClassPath",
    "driver_memory": "spark.driver.memory",
    "executor_memory": "spark.executor.memory",
    "executor_cores": "spark.executor.cores",
    "num_executors": "spark.executor.instances",
    "total_executor_cores": "spark.cores.max",
    "name": "spark.app.name",
}
_REFUSED = {
    "properties_file": ("it does not read a file of the worker", "give its properties in conf"),
    "keytab": ("the execution role is its identity", "remove it"),
    "principal": ("the execution role is its identity", "remove it"),
    "proxy_user": ("the execution role is its identity", "remove it"),
    "yarn_queue": ("it has no queues of YARN", "remove it; name another application"),
    "deploy_mode": ("it decides that itself", "remove it"),
}


@dataclass
class EmrService:
    """Runs drivers as job runs of EMR Serverless.

    :param conn_id: connection of AWS, whose ``service_config`` names the application.
    """

    conn_id: str
    master = "aws://"  # as Spark's hook reads a connection of AWS

    def refuse(self, planned: PlannedJob) -> None:
        """Refuse arguments that would not reach the driver.

        :raises ConfigurationError: naming the argument.
        """
        spark = planned.spark
        given = {name: spark._connection[name] for name in ("keytab", "principal", "deploy_mode")}
        given |= {name: getattr(spark, f"_{name}") for name in ("properties_file", "proxy_user")}
        given["yarn_queue"] = spark._connection["queue"]
        for name, (reason, remedy) in _REFUSED.items():
            if given[name]:
                place = f"{self.conn_id!r} is a connection of EMR Serverless"
                raise ConfigurationError(name, f"{place}: {reason}", remedy=remedy)
        spark_properties(_conf(spark, planned.env_vars))
        _ = self._target, self._client

    def folder(self, table: str, identity: str) -> RunFolder:
        """Return the place of a task run's input and reports.

        :raises ConfigurationError: if there is none on S3.
        """
        folder = RunFolder.of(table, identity, self._settings.get("report_path"))
        if parse_table_path(folder.url)[0] not in S3:
            raise ConfigurationError(
                "report_path",
                f"{folder.url} is not on S3, where EMR Serverless reads a driver's files",
                remedy=f"add report_path to {self._place}, such as s3://scratch/occ",
            )
        return folder

    def storage_connection(self, url: str, table: str, table_conn_id: str | None) -> str:
        """Return the connection of the table's storage, if both are on S3, or that of AWS."""
        are_on_s3 = all(parse_table_path(one)[0] in S3 for one in (url, table))
        return (table_conn_id if are_on_s3 else None) or self.conn_id

    def submitter(
        self, drivers: StagedDrivers, killed: Flag, launch: Launch | None = None
    ) -> EmrServerless:
        """Return what runs one submission, or follows job runs of earlier processes."""
        return EmrServerless(
            self._client,
            self._target.id,
            self._request(launch) if launch else {},
            launch.submission.report if launch else "",
            report_of=lambda key, attempt: drivers.folder(key).report(attempt),
            open_report=drivers.open_report,
            log_uri=self._target.log_uri,
            open_log=lambda url: open_remote(url, drivers.file_system(url)),
            origin=drivers.origin,
            discard=drivers.remove_input,
            killed=killed,
        )

    def _request(self, launch: Launch) -> dict[str, Any]:
        spark, submission = launch.spark, launch.submission
        conf = _conf(spark, spark._env_vars or {})
        return job_run_request(self._target, submission.application, submission.arguments, conf)

    @property
    def _place(self) -> str:
        return f"connection {self.conn_id!r} service_config.{_SERVICE}"

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        extra = BaseHook.get_connection(self.conn_id).extra_dejson
        settings = (extra.get("service_config") or {}).get(_SERVICE) or {}
        return settings if isinstance(settings, Mapping) else {}

    @cached_property
    def _target(self) -> EmrApplication:
        return EmrApplication.of(self._settings, self._place)

    @cached_property
    def _client(self) -> Any:
        """The client of boto3; it has looked up its connection.

        A user's own time-outs and retries in the connection's ``config_kwargs`` go before ours.
        """
        try:
            from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise ConfigurationError(
                "conn_id",
                f"{self.conn_id!r} is a connection of AWS, whose provider is not installed",
                remedy=f"{install_extra('emr')} on the workers and triggerers",
            ) from error
        hook = EmrServerlessHook(aws_conn_id=self.conn_id)
        retries = {"mode": "standard", "total_max_attempts": _CALLS}
        ours = Config(connect_timeout=_CONNECT_S, read_timeout=_READ_S, retries=retries)
        users = hook.conn_config.botocore_config
        try:
            return hook.get_client_type(config=ours.merge(users) if users else ours)
        except BotoCoreError as error:
            raise ConfigurationError(
                f"connection {self.conn_id!r}",
                f"there is no client of EMR Serverless: {error}",
                remedy="correct it, such as by region_name in its extra",
            ) from error


def _conf(spark: Any, variables: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments of ``SparkSubmitOperator`` as Spark's properties."""
    given = {key: getattr(spark, f"_{name}") for name, key in _CONF.items()}
    environment = {f"{_VARIABLE}{name}": str(value) for name, value in variables.items()}
    return {
        **spark._conf,
        **{key: value for key, value in given.items() if value},
        **environment,
    }
