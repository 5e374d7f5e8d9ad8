"""Spark's configuration of a submission to YARN, with the tags that find it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from airflow_occ_provider.errors import ConfigurationError

COMMON_TAG = "airflow_occ"
"""The tag of all applications that this provider submits."""
_ATTEMPTS = "spark.yarn.maxAppAttempts"
_TAGS = "spark.yarn.tags"
_PLAIN_KEY = re.compile(r"[a-z0-9_-]{1,64}")


def identity_tag(key: str) -> str:
    """Return the tag of all applications of a task run."""
    plain = key if _PLAIN_KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()
    return f"airflow_occ_{plain}"


def protected_conf(key: str, conf: Mapping[str, object], *, submission: str) -> dict[str, str]:
    """Return Spark's configuration for one submission that YARN does not repeat.

    :param key: identity of the task run.
    :param conf: the user's configuration.
    :param submission: a tag of this submission alone.
    :raises ConfigurationError: if YARN would start the driver again.
    """
    attempts = str(conf.get(_ATTEMPTS, 1)).strip()
    if attempts != "1":
        raise ConfigurationError(
            f"conf {_ATTEMPTS}",
            f"with {attempts} YARN runs a failed driver again, unknown to Airflow",
            remedy="remove it, and use the task's retries",
        )
    tags = [one.strip() for one in str(conf.get(_TAGS, "")).split(",") if one.strip()]
    return {
        **{name: str(value) for name, value in conf.items()},
        _ATTEMPTS: "1",
        _TAGS: ",".join([*tags, COMMON_TAG, identity_tag(key), submission]),
        "spark.yarn.submit.waitAppCompletion": "false",
    }
