"""Spark's own hook with a task's arguments, and what a task shows of its driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import BaseHook, BaseOperatorLink
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.attempts.submitter import URL_FACT, Handle
from airflow_occ_provider.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey


_MASTER_WITHOUT_CONNECTION = "yarn"
# Airflow's UI folds what a log has between these.
_BEGIN = "::group::The driver's output"
_END = "::endgroup::"
_URL = "driver_url"
_log = logging.getLogger(__name__)


def spark_hook(task: Any) -> SparkSubmitHook:
    """Return the hook with a task's arguments; it looks up the connection once.

    :raises ConfigurationError: if the connection is missing, or its address has ``k8s`` in it and the
        provider for Kubernetes is not installed.
    """
    try:
        hook: SparkSubmitHook = task._get_hook()
    except (RuntimeError, NameError) as error:
        raise ConfigurationError(
            "conn_id",
            f"Spark's hook takes the address of {task._conn_id!r} for Kubernetes: {error}",
            remedy="install apache-airflow-providers-cncf-kubernetes, or use a name without k8s in it",
        ) from error
    if hook._java_class:  # run_main.py calls it
        hook._java_class = None
    if hook._connection["master"] == _MASTER_WITHOUT_CONNECTION:
        try:
            BaseHook.get_connection(task._conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                "conn_id",
                f"there is no Spark connection {task._conn_id!r}",
                remedy="create it in Airflow, or name another",
            ) from error
    return hook


def attempt_hook(
    hook: SparkSubmitHook,
    name: str,
    arguments: Sequence[str],
    env_vars: Mapping[str, str],
    conf: Mapping[str, Any],
) -> SparkSubmitHook:
    """Return a copy of the hook with an attempt's values; it looks up nothing."""
    hook = copy(hook)
    hook._name, hook._application_args = name, list(arguments)
    hook._env_vars, hook._conf = dict(env_vars), dict(conf)
    return hook


def with_lineage(conf: Mapping[str, Any], task: Any, context: Context) -> dict[str, Any]:
    """Return Spark's settings with OpenLineage's, as ``SparkSubmitOperator`` does."""
    settings = dict(conf)
    if task._openlineage_inject_parent_job_info:
        settings = inject_parent_job_information_into_spark_properties(settings, context)
    if task._openlineage_inject_transport_info:
        settings = inject_transport_information_into_spark_properties(settings, context)
    return settings


def environment(task: Any) -> dict[str, str]:
    """Return the environment variables that a task gives to ``spark-submit``."""
    return {key: str(value) for key, value in (task.env_vars or {}).items()}


@dataclass(slots=True)
class FoldedOutput:
    """A driver's output in one group of the task's log, which Airflow's UI folds.

    :param log: logs one line.
    """

    log: Callable[[str], object]
    _is_open: bool = field(default=False, init=False)

    def add(self, line: str) -> None:
        """Log a line; the first one opens the group."""
        if not self._is_open:
            self._is_open = True
            self.log(_BEGIN)
        self.log(line.strip())

    def close(self) -> None:
        """Close the group: what follows is visible without a click."""
        if self._is_open:
            self._is_open = False
            self.log(_END)


class HudiDriverLink(BaseOperatorLink):
    """The link to the page of a task's driver, where its place has one."""

    name = "Driver"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the URL of the page; empty if the driver has none."""
        return str(vars(operator).get(_URL, ""))


def show_driver(context: Context, handle: Handle) -> None:
    """Publish the link to a driver; Airflow pushes links at a task's end."""
    url = handle.facts.get(URL_FACT)
    if not url:
        return
    try:
        setattr(context["task"], _URL, str(url))
        context["ti"].xcom_push(HudiDriverLink().xcom_key, str(url))
    except Exception as error:  # noqa: BLE001 - what the UI shows must not fail the job
        _log.debug("The UI does not show the driver yet: %s", error)
