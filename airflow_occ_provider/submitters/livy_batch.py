"""Pure: the request for a batch of Livy, and what its end means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.submitters.livy_api import Batch
from airflow_occ_provider.submitters.reported import ReportedDriver

# A service runs a driver again without Airflow if one of these allows it.
_RUN_ONCE = {"spark.yarn.maxAppAttempts": "1", "spark.driver.supervise": "false"}
_FIELDS = {
    "jars": "jars",
    "py_files": "pyFiles",
    "files": "files",
    "archives": "archives",
    "driver_memory": "driverMemory",
    "driver_cores": "driverCores",
    "executor_memory": "executorMemory",
    "executor_cores": "executorCores",
    "num_executors": "numExecutors",
    "queue": "queue",
    "proxy_user": "proxyUser",
}


def livy_batch(
    application: str,
    arguments: Sequence[str],
    conf: Mapping[str, object] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the body of the request for a batch.

    :param application: URL of the runner, such as ``StagedJob.application``.
    :param arguments: its arguments.
    :param conf: Spark's properties.
    :param settings: further arguments of Airflow's ``LivyOperator``, such as ``driver_memory``.
    :raises ConfigurationError: if the driver could be run twice, or for an unknown argument.
    """
    given = {key: _text(value) for key, value in (conf or {}).items() if value is not None}
    for key, allowed in _RUN_ONCE.items():
        if given.setdefault(key, allowed) != allowed:
            raise ConfigurationError(
                f"conf {key}",
                f"{given[key]} lets the cluster run the driver a second time, unseen",
                remedy=f"remove it, or set it to {allowed}",
            )
    unknown = sorted(set(settings) - set(_FIELDS))
    if unknown:
        raise ConfigurationError(
            unknown[0], "a batch of Livy has no such argument", remedy=f"use {', '.join(_FIELDS)}"
        )
    more = {_FIELDS[name]: value for name, value in settings.items() if value is not None}
    return {"file": application, "args": list(arguments), "conf": given, **more}


@dataclass(slots=True)
class FollowedBatch(ReportedDriver):
    """What this process has seen of one batch.

    :param end: the batch at its end, which Livy forgets after some minutes.
    :param is_deleted: whether this process has ended it.
    """

    end: Batch | None = None
    is_deleted: bool = False

    def final_code(self) -> int:
        """Return the exit code of the ended driver."""
        state = "killed" if self.is_deleted or self.end is None else self.end.state
        return self.code(is_success=state == "success", was_ended=state == "killed")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
