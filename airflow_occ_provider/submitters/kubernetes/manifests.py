"""Pure: what is submitted to Kubernetes for one driver."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

from airflow_occ_provider.errors import ConfigurationError

FOLDER = "/etc/airflow-occ"
"""The folder of the driver's container in which its input lies."""

IDENTITY_LABEL = "airflow-occ-identity"
SUBMISSION_LABEL = "airflow-occ-submission"
ROLE_LABEL = "spark-role"  # Spark's own
NAMESPACE = "spark.kubernetes.namespace"

_POD_NAME = "spark.kubernetes.driver.pod.name"
_WAITS = "spark.kubernetes.submission.waitAppCompletion"
_PLAIN_KEY = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_MOST_BYTES = 1024 * 1024


def identity_label(key: str) -> str:
    """Return the label of all drivers of a task run."""
    return key if _PLAIN_KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:40]


def submission_name(key: str) -> str:
    """Return a new name for one submission: of its Secret, and its label."""
    return f"airflow-occ-{hashlib.sha256(key.encode()).hexdigest()[:16]}-{secrets.token_hex(4)}"


def refuse_conf(conf: Mapping[str, object], place: str = "conf") -> None:
    """Refuse Spark's settings with which a driver could not be submitted again.

    :param place: where they are set, for the message.
    :raises ConfigurationError: naming the setting.
    """
    if str(conf.get(_POD_NAME) or ""):
        raise ConfigurationError(
            f"{place} {_POD_NAME}",
            f"with one name, {conf[_POD_NAME]}, the pod of a next try is refused beside the last one's",
            remedy="remove it: Spark makes a name for each pod",
        )


def protected_conf(
    key: str, conf: Mapping[str, object], *, submission: str, namespace: str
) -> dict[str, str]:
    """Return Spark's configuration for one submission.

    Spark itself sets the pod's ``restartPolicy: Never``.

    :param key: identity of the task run.
    :param conf: the user's configuration.
    :param submission: name of the submission.
    :raises ConfigurationError: if the configuration allows only one submission.
    """
    refuse_conf(conf)
    labels = {IDENTITY_LABEL: identity_label(key), SUBMISSION_LABEL: submission}
    own = {
        f"spark.kubernetes.{role}.label.{name}": value
        for role in ("driver", "executor")
        for name, value in labels.items()
    }
    return {
        **{name: str(value) for name, value in conf.items()},
        **own,
        NAMESPACE: namespace,
        f"spark.kubernetes.driver.secrets.{submission}": FOLDER,
        _WAITS: "false",
    }


def secret(
    submission: str, key: str, content: Mapping[str, bytes], *, pod: str, uid: str
) -> dict[str, Any]:
    """Return the Secret with a driver's input; it is removed with the pod.

    :param submission: name of the submission.
    :param key: identity of the task run.
    :param content: the files by name.
    :param pod: name of the driver's pod.
    :param uid: the pod's id.
    """
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": submission,
            "labels": {IDENTITY_LABEL: identity_label(key), SUBMISSION_LABEL: submission},
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(one).decode() for name, one in content.items()},
    }


def refuse_large(content: Mapping[str, bytes]) -> None:
    """Refuse input that does not fit into a Secret.

    :raises ConfigurationError: then.
    """
    size = sum(map(len, content.values()))
    if size > _MOST_BYTES:
        raise ConfigurationError(
            "application",
            f"the job and its options have {size} bytes, and a Secret holds {_MOST_BYTES}",
            remedy="put the job where the driver reads it (s3a://..., or local:///... for a file of its "
            "image)",
        )


def ends_now() -> dict[str, Any]:
    """Return the change after which a node ends a pod, and keeps status and log."""
    return {"spec": {"activeDeadlineSeconds": 1}}


def deletion(uid: str, version: str = "") -> dict[str, Any]:
    """Return the options for the deletion of one pod, and of no later one of its name.

    :param version: if given, the pod is not deleted if it has changed since.
    """
    only = {"uid": uid, **({"resourceVersion": version} if version else {})}
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": only,
        "propagationPolicy": "Background",
    }
