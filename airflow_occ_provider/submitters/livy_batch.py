"""Pure: the request for a batch of Livy, and what its end means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_occ_provider.attempts.log.facts import read_fact
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.submitters.livy_api import Batch

_NOT_PROTECTED = 78
_KILLED = -9
_TERMINATED = -15
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


class ReportedLines(Protocol):
    """The report of a driver, in a file that the worker reaches."""

    @property
    def missed(self) -> int:
        """The number of lines that a long report no longer has."""

    def lines(self) -> list[str]:
        """Return the lines since the last call."""


@dataclass(slots=True)
class FollowedBatch:
    """What this process has seen of one batch.

    :param report: the driver's report, if it has one.
    :param end: the batch at its end, which Livy forgets after some minutes.
    :param is_deleted: whether this process has ended it.
    :param exit_code: the driver's, as its runner reported it.
    :param is_read: whether the report and the log were returned to their end.
    :param looked_at: monotonic time of the last request for its state.
    :param silent_since: monotonic time since which Livy has not answered.
    """

    report: ReportedLines | None
    end: Batch | None = None
    is_deleted: bool = False
    exit_code: int | None = None
    is_read: bool = False
    looked_at: float = float("-inf")
    silent_since: float | None = None
    _is_protected: bool = False
    _is_followed: bool = False

    def take(self, lines: list[str]) -> list[str]:
        """Take lines of the driver, and return them."""
        for line in lines:
            fact = read_fact(line) or {}
            match fact.get("fact"):
                case "protected":
                    self._is_protected, self._is_followed = True, fact.get("followed") is True
                case "not_protected":
                    self.exit_code, self._is_followed = _NOT_PROTECTED, True
                case "end":
                    self.exit_code = int(fact.get("exit_code", 1))
        return lines

    @property
    def is_whole(self) -> bool:
        """Whether the report was read to the driver's own end, with Hudi's records."""
        has_end = self._is_followed and self.exit_code is not None
        return self.report is not None and has_end and not self.report.missed

    def final_code(self) -> int:
        """Return the exit code of the ended driver.

        Livy distinguishes success from all else; the runner reports every end but a sudden one.
        """
        state = "killed" if self.is_deleted or self.end is None else self.end.state
        if state == "success":
            return self.exit_code or 0
        if state == "killed":
            return _TERMINATED
        if self.exit_code is None and self._is_protected:
            return _KILLED
        return self.exit_code or 1


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
