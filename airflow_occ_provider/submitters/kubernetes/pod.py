"""Pure: what a pod, as the API server shows it, proves about its driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen

_DRIVER_CONTAINER = "spark-kubernetes-driver"
_BIND_ADDRESS = "SPARK_DRIVER_BIND_ADDRESS"  # Spark sets it in the driver's container alone
_OVER = ("Succeeded", "Failed")
_CONFIRM_S = 60.0
_WAITS_AS_USUAL = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as its API server shows it.

    :param shown: its JSON.
    """

    shown: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name, unique among the pods that its namespace has now."""
        return str(self.shown["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Its id, which no other pod ever has."""
        return str(self.shown["metadata"]["uid"])

    @property
    def node(self) -> str:
        """The node to which it is bound, empty before."""
        return str(self.shown["spec"].get("nodeName") or "")

    @property
    def container(self) -> str:
        """The name of the driver's container; there may be others beside it."""
        containers = self.shown["spec"]["containers"]
        for container in containers:
            if any(variable["name"] == _BIND_ADDRESS for variable in container.get("env") or ()):
                return str(container["name"])
        names = [str(container["name"]) for container in containers]
        return _DRIVER_CONTAINER if _DRIVER_CONTAINER in names else names[0]

    @property
    def is_living(self) -> bool:
        """Whether a container of it may run, as far as its phase shows."""
        return self._status.get("phase") not in _OVER

    def proof(self, now_s: float) -> Running | Ended | Unseen:
        """Return whether the driver is alive, as far as the node has told the API server.

        A phase alone proves nothing: the pod of a lost node is ``Failed`` while its container may
        run. A node reports a container as ``terminated`` once it has none of its processes.

        :param now_s: seconds since the epoch.
        """
        if "terminated" in self._state:
            return Ended(None)
        where = f"its node {self.node}" if self.node else "no node"
        silence = f"{where} does not prove that the driver has ended"
        if not self.is_living:
            return Unseen(f"pod {self.name} is {self._status.get('phase')}, but {silence}")
        deleted = self.shown["metadata"].get("deletionTimestamp")
        if deleted and now_s > datetime.fromisoformat(deleted).timestamp() + _CONFIRM_S:
            return Unseen(f"pod {self.name} is deleted, but {silence}")
        return Running()

    def describe(self) -> str:
        """Return what its driver waits for, or how it ended; empty while it runs."""
        state, phase = self._state, self._status.get("phase")
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended:
            reasons = filter(None, (ended.get("reason"), self._status.get("reason")))
            why = "; the pod: ".join(reasons) or "no reason given"
            return f"container {self.container} ended with exit code {ended['exitCode']} ({why})"
        if not self.is_living:
            return f"{phase} ({_said(self._status) or 'no reason given'})"
        if waiting and waiting.get("reason") not in _WAITS_AS_USUAL:
            return f"{phase}: {_said(waiting)}"
        conditions = self._status.get("conditions") or ()
        unbound = next((each for each in conditions if each.get("reason") == "Unschedulable"), None)
        return f"{phase}: {_said(unbound)}" if unbound else ""

    @property
    def _status(self) -> Mapping[str, Any]:
        return self.shown.get("status") or {}

    @property
    def _state(self) -> Mapping[str, Any]:
        """The state of the driver's container; empty if its node has reported none."""
        name = self.container
        statuses = self._status.get("containerStatuses") or ()
        return next((status.get("state") or {} for status in statuses if status["name"] == name), {})


def _said(state: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (state.get("reason"), state.get("message"))))
