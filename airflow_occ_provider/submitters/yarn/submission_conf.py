"""Spark's configuration of a submission to YARN, with the tags that find it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

COMMON_TAG = "airflow_occ"
"""The tag of all applications that this provider submits."""
_ATTEMPTS = "spark.yarn.maxAppAttempts"
_TAGS = "spark.yarn.tags"


def attempt_tag(folder: str) -> str:
    """Return the tag of what was submitted for one attempt.

    :param folder: URL of the attempt's folder.
    """
    return f"{COMMON_TAG}_{hashlib.sha256(folder.encode()).hexdigest()[:32]}"


def submission_conf(conf: Mapping[str, object], folder: str) -> dict[str, str]:
    """Return Spark's configuration for one submission.

    A second attempt of YARN is not granted, and costs a container for nothing.

    :param conf: the user's configuration.
    :param folder: URL of the attempt's folder.
    """
    tags = [tag.strip() for tag in str(conf.get(_TAGS, "")).split(",") if tag.strip()]
    return {
        _ATTEMPTS: "1",
        **{name: str(value) for name, value in conf.items()},
        _TAGS: ",".join([*tags, COMMON_TAG, attempt_tag(folder)]),
        "spark.yarn.submit.waitAppCompletion": "false",
    }
