"""Pure: Spark's configuration of one driver in a pod, and its names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

IDENTITY_LABEL = "airflow-occ-identity"
ROLE_LABEL = "spark-role"  # Spark's own
NAMESPACE = "spark.kubernetes.namespace"

_POD_NAME = "spark.kubernetes.driver.pod.name"
_WAITS = "spark.kubernetes.submission.waitAppCompletion"
_PLAIN_IDENTITY = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_NO_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_PREFIX = 38  # a pod's name is its host's too, so it has 63 characters at most


def identity_label(identity: str) -> str:
    """Return the label of all pods of a task run."""
    is_plain = _PLAIN_IDENTITY.fullmatch(identity)
    return identity if is_plain else hashlib.sha256(identity.encode()).hexdigest()[:40]


def pod_name(application: str, folder: str) -> str:
    """Return the name of an attempt's driver pod, which no other attempt has.

    :param application: name of the application, for people.
    :param folder: URL of the attempt's folder.
    """
    prefix = _NO_NAME.sub("-", application.lower())[:_LONGEST_PREFIX].strip("-")
    attempt = hashlib.sha256(folder.encode()).hexdigest()[:12]
    return "-".join(filter(None, (prefix, attempt, "driver")))


def submission_conf(
    conf: Mapping[str, object], *, identity: str, pod: str, namespace: str
) -> dict[str, str]:
    """Return Spark's configuration for one submission.

    :param conf: the user's configuration.
    :param identity: of the task run.
    :param pod: name of the driver's pod.
    :param namespace: of the pods.
    """
    label = identity_label(identity)
    return {
        **{name: str(value) for name, value in conf.items()},
        **{f"spark.kubernetes.{role}.label.{IDENTITY_LABEL}": label for role in ("driver", "executor")},
        NAMESPACE: namespace,
        _POD_NAME: pod,
        _WAITS: "false",
    }
