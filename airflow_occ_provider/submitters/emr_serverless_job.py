"""Pure: the request for a job run of EMR Serverless, and what its end means."""

from __future__ import annotations

import hashlib
import posixpath
import re
import secrets
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.submitters.emr_serverless_api import JobRun
from airflow_occ_provider.submitters.reported import ReportedDriver

S3 = ("s3", "s3a", "s3n")
"""The schemes of a file that EMR Serverless reads; it knows the first."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9-]{1,43}")  # a token has at most 64 characters
_PLAIN_ATTEMPT = re.compile(r"[A-Za-z0-9]{1,8}")
_SPARK = "spark-defaults"
_MOST_PROPERTIES = 100
_LONGEST_VALUE = 1024
_REQUIRED = ("application_id", "execution_role_arn")
_OPTIONAL = ("log_uri", "report_path", "config", "endpoint_url")  # the last is Airflow's
_OWN = ("applicationId", "clientToken", "executionRoleArn", "jobDriver", "name")
_OWN_CONF = ("spark.master", "spark.submit.deployMode")
_BATCH = "BATCH"
_ONCE = {"maxAttempts": 1}


@dataclass(frozen=True, slots=True)
class EmrApplication:
    """Where job runs are started, and how.

    :param id: of the application.
    :param role: ARN of the execution role.
    :param log_uri: where EMR Serverless writes the logs.
    :param config: further arguments of ``StartJobRun``, in boto3's spelling.
    """

    id: str
    role: str
    log_uri: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any], place: str) -> EmrApplication:
        """Read a connection's settings.

        :param place: their name, for people.
        :raises ConfigurationError: if one is missing, unknown, or lets a driver run again.
        """
        for name in _REQUIRED:
            if not settings.get(name):
                raise ConfigurationError(
                    f"{place}.{name}",
                    "a job run of EMR Serverless needs it",
                    remedy="add it to the extra of the AWS connection",
                )
        unknown = sorted(set(settings) - {*_REQUIRED, *_OPTIONAL})
        if unknown:
            raise ConfigurationError(
                f"{place}.{unknown[0]}",
                "there is no such setting",
                remedy=f"use {', '.join((*_REQUIRED, *_OPTIONAL))}; config is for more arguments of "
                "StartJobRun",
            )
        config = settings.get("config") or {}
        _refuse_reruns(config, f"{place}.config")
        identifier, role = (str(settings[name]) for name in _REQUIRED)
        return cls(identifier, role, str(settings.get("log_uri") or ""), config)


def job_run_request(
    target: EmrApplication, entry_point: str, arguments: Sequence[str], conf: Mapping[str, object]
) -> dict[str, Any]:
    """Return the request for a job run, without its name and token.

    Spark's properties go into the request as such, since the service parses a command line in a way of
    its own.

    :param entry_point: URL of the runner.
    :param conf: Spark's properties.
    :raises ConfigurationError: if EMR Serverless does not take the properties.
    """
    request = deepcopy(dict(target.config))
    overrides = request.setdefault("configurationOverrides", {})
    classes = overrides.setdefault("applicationConfiguration", [])
    spark = next((one for one in classes if one.get("classification") == _SPARK), None)
    if spark is None:
        classes.append(spark := {"classification": _SPARK})
    spark["properties"] = {**spark.get("properties", {}), **spark_properties(conf)}
    if target.log_uri:
        monitoring = overrides.setdefault("monitoringConfiguration", {})
        monitoring.setdefault("s3MonitoringConfiguration", {})["logUri"] = target.log_uri
    job = {"entryPoint": _of_s3(entry_point), "entryPointArguments": list(arguments)}
    return {
        **request,
        "applicationId": target.id,
        "executionRoleArn": target.role,
        "jobDriver": {"sparkSubmit": job},
        "mode": _BATCH,
        "retryPolicy": dict(_ONCE),
    }


def spark_properties(conf: Mapping[str, object]) -> dict[str, str]:
    """Return Spark's properties as EMR Serverless takes them.

    :raises ConfigurationError: for one that it sets itself, and if they are too many or too long.
    """
    given = {key: _text(value) for key, value in conf.items() if value is not None}
    for key in _OWN_CONF:
        if key in given:
            raise ConfigurationError(f"conf {key}", "EMR Serverless sets it itself", remedy="remove it")
    if len(given) > _MOST_PROPERTIES:
        raise ConfigurationError(
            "conf",
            f"EMR Serverless takes {_MOST_PROPERTIES} properties of a job run, not {len(given)}",
            remedy="set some of them for the whole application",
        )
    for key, value in given.items():
        if len(value) > _LONGEST_VALUE:
            raise ConfigurationError(
                f"conf {key}",
                f"EMR Serverless takes values of up to {_LONGEST_VALUE} characters, not {len(value)}",
                remedy="shorten it, or set it for the whole application",
            )
    return given


def token_prefix(key: str) -> str:
    """Return the beginning of the names and client tokens of all job runs of a key."""
    plain = key if _PLAIN_KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:43]
    return f"airflow_occ_{plain}_"


def run_token(key: str, report: str) -> str:
    """Return the name and client token of one job run.

    :param report: URL of its report, whose name is the attempt's; empty for a run without one.
    """
    attempt = posixpath.basename(report).removesuffix(".jsonl")
    if not _PLAIN_ATTEMPT.fullmatch(attempt):
        attempt = secrets.token_hex(4)
    return f"{token_prefix(key)}{attempt}"


@dataclass(slots=True)
class FollowedRun(ReportedDriver):
    """What this process has seen of one job run.

    :param end: the job run at its end.
    :param log_until: monotonic time until which its log is waited for after its end.
    """

    end: JobRun | None = None
    log_until: float = 0.0

    def hear(self, log: list[str]) -> None:
        """Take the end of the log in place of a report; it may lack earlier lines."""
        self.take(log)
        self.report = None

    def final_code(self) -> int:
        """Return the exit code of the ended driver."""
        state = self.end.state if self.end else "FAILED"
        return self.code(is_success=state == "SUCCESS", was_ended=state == "CANCELLED")


def _refuse_reruns(config: Mapping[str, Any], place: str) -> None:
    for name in _OWN:
        if name in config:
            raise ConfigurationError(
                f"{place}.{name}", "the provider sets it for each driver", remedy="remove it"
            )
    retries = config.get("retryPolicy")
    if retries not in (None, _ONCE):
        raise ConfigurationError(
            f"{place}.retryPolicy",
            f"with {retries} EMR Serverless runs a failed driver again, unknown to Airflow",
            remedy="remove it, and use the task's retries",
        )
    mode = config.get("mode", _BATCH)
    if mode != _BATCH:
        raise ConfigurationError(
            f"{place}.mode",
            f"EMR Serverless runs a driver of mode {mode} again whenever it fails, unknown to Airflow",
            remedy=f"remove it, or set it to {_BATCH}",
        )


def _of_s3(url: str) -> str:
    """Return a URL with the scheme of S3 that EMR Serverless knows."""
    scheme, separator, path = url.partition("://")
    return f"{S3[0]}{separator}{path}" if scheme in S3 else url


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
