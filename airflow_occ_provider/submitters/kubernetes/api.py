"""The calls to one cluster's API about drivers, each with a time-out."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from airflow_occ_provider.errors import SubmitterUnreachableError
from airflow_occ_provider.submitters.kubernetes.pod import Pod

_TIMEOUTS_S = (5.0, 15.0)  # for a connection, and for each part of an answer
_MOST_OF_A_LOG = 1 << 16
_ENDS_NOW = {"spec": {"activeDeadlineSeconds": 1}}
"""The change after which a node ends a pod, and keeps its status and its log: a deletion takes both."""
_GONE = (http.HTTPStatus.NOT_FOUND,)
_GONE_OR_ANOTHER = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT)
_NO_LOG = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.BAD_REQUEST)


class PodApi:
    """The pods of drivers in one namespace.

    Each call raises ``SubmitterUnreachableError`` if the cluster does not answer or refuses it.

    :param client: the ``ApiClient`` of the package ``kubernetes``.
    :param namespace: of the drivers.
    """

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    @property
    def address(self) -> str:
        """The cluster's address and the namespace, for messages."""
        return f"{self._client.configuration.host}, namespace {self.namespace!r}"

    def drivers(self, selector: str) -> list[Pod]:
        """Return the pods of drivers with a label."""
        answer = self._call("GET", "pods", {"labelSelector": f"{selector},spark-role=driver"})
        return [Pod(shown) for shown in json.loads(answer)["items"]] if answer else []

    def pod(self, name: str) -> Pod | None:
        """Return a pod; ``None`` if there is none of the name."""
        answer = self._call("GET", f"pods/{name}")
        return answer if answer is None else Pod(json.loads(answer))

    def last_lines(self, pod: Pod, count: int) -> list[str]:
        """Return the last lines of its driver's log; none if its node has it no more."""
        query = {"container": pod.container, "tailLines": count, "limitBytes": _MOST_OF_A_LOG}
        answer = self._call("GET", f"pods/{pod.name}/log", query, missing=_NO_LOG)
        return bytes(answer or b"").decode(errors="replace").splitlines()

    def end(self, name: str) -> None:
        """Have a pod ended. Its status and its log stay where a node knows it."""
        pod = self.pod(name)
        if pod and pod.node:
            self._call("PATCH", f"pods/{name}", body=_ENDS_NOW)
        elif pod:
            self.delete(pod)

    def delete(self, pod: Pod) -> None:
        """Delete a pod, and with it all that it owns."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod.uid},
            "propagationPolicy": "Background",
        }
        self._call("DELETE", f"pods/{pod.name}", body=body, missing=_GONE_OR_ANOTHER)

    def _call(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        missing: tuple[int, ...] = _GONE,
    ) -> Any:
        """Return the bytes of an answer.

        :param missing: statuses that are answered by ``None``.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        try:
            answer = self._client.call_api(
                f"/api/v1/namespaces/{self.namespace}/{path}",
                verb,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json, */*", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=_TIMEOUTS_S,
            )
            with closing(answer):
                return answer.data
        except ApiException as error:
            if error.status in missing:
                return None
            raise SubmitterUnreachableError(
                f"the cluster at {self.address} answers {verb} {path} by {error.status} {error.reason}: "
                f"{_message(error.body)}",
                remedy="check the account of the task, and its rights in the namespace",
            ) from error
        except (HTTPError, OSError, ValueError) as error:
            raise SubmitterUnreachableError(
                f"the cluster at {self.address} does not answer: {type(error).__name__}: {error}",
                remedy="check the cluster's address and its API server",
            ) from error


def _message(body: Any) -> str:
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(body)[:200]
