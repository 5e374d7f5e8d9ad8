"""Pure: what a pod, as the API server shows it, proves about its driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen

_DRIVER_CONTAINER = "spark-kubernetes-driver"
_BIND_ADDRESS = "SPARK_DRIVER_BIND_ADDRESS"  # Spark sets it in the driver's container alone
_KILLED = -9
_TERMINATED = -15
_SIGNAL = 128
_OVER = ("Succeeded", "Failed")
_BY_COLLECTOR = "DeletionByPodGC"  # it marks pods of lost nodes as failed, without a proof
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
    def version(self) -> str:
        """The version of the cluster's state that it was read from."""
        return str(self.shown["metadata"]["resourceVersion"])

    @property
    def node(self) -> str:
        """The node to which it is bound, empty before."""
        return str(self.shown["spec"].get("nodeName") or "")

    @property
    def container(self) -> str:
        """The name of the driver's container; there may be others beside it."""
        given = self.shown["spec"]["containers"]
        marked = [one for one in given if any(e["name"] == _BIND_ADDRESS for e in one.get("env") or ())]
        named = [one for one in given if one["name"] == _DRIVER_CONTAINER]
        return str((marked or named or given)[0]["name"])

    @property
    def is_living(self) -> bool:
        """Whether a container of it may run, as far as its phase shows."""
        return self._status.get("phase") not in _OVER

    @property
    def has_begun(self) -> bool:
        """Whether the driver's container was started."""
        state = self._state
        return "running" in state or "terminated" in state

    def proof(self, now_s: float) -> Running | Ended | Unseen:
        """Return whether the driver is alive, as far as the node has told the API server.

        A phase alone proves nothing: the pod of a lost node is ``Failed`` while its container may
        run. A node reports a container as ``terminated`` once it has none of its processes.

        :param now_s: seconds since the epoch.
        """
        ended = self._state.get("terminated")
        if ended:
            code = _exit_code(int(ended["exitCode"]))
            return Ended(code or (_TERMINATED if self._was_ended(ended) else 0))
        if self._never_ran:
            return Ended(_KILLED)
        if self._is_collected or not self.is_living:
            return Unseen(f"pod {self.name} is {self._status.get('phase')}, but {self._silence}")
        deleted_s = _seconds(self.shown["metadata"].get("deletionTimestamp"))
        if deleted_s and now_s > deleted_s + _CONFIRM_S:
            return Unseen(f"pod {self.name} is deleted, but {self._silence}")
        return Running()

    def describe(self) -> str:
        """Return what its driver waits for, or how it ended; empty while it runs."""
        state, phase = self._state, self._status.get("phase")
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended:
            reason = ended.get("reason") or "no reason given"
            of_pod = self._status.get("reason")
            why = f"{reason}; the pod: {of_pod}" if of_pod else reason
            return f"container {self.container} ended with exit code {ended['exitCode']} ({why})"
        if not self.is_living:
            return f"{phase} ({_said(self._status) or 'no reason given'})"
        if waiting and waiting.get("reason") not in _WAITS_AS_USUAL:
            return f"{phase}: {_said(waiting)}"
        unbound = next((one for one in self._conditions if one.get("reason") == "Unschedulable"), None)
        return f"{phase}: {_said(unbound)}" if unbound else ""

    def _was_ended(self, ended: Mapping[str, Any]) -> bool:
        """Whether the container was asked to end: even exit code 0 is no success then.

        A deletion is dated at the end of its grace period, and again by the node when it is done.
        """
        metadata = self.shown["metadata"]
        deleted_s = _seconds(metadata.get("deletionTimestamp"))
        own_s = self.shown["spec"].get("terminationGracePeriodSeconds") or 0
        grace_s = max(metadata.get("deletionGracePeriodSeconds") or 0, own_s)
        is_later = bool(deleted_s) and _seconds(ended.get("finishedAt")) >= deleted_s - grace_s
        return is_later or bool(self._status.get("reason"))

    @property
    def _never_ran(self) -> bool:
        """Whether its node has given it up, or will never get it, before the container was started."""
        if "running" in self._state or self._is_collected:
            return False
        is_deleted = bool(self.shown["metadata"].get("deletionTimestamp"))
        return not self.is_living or (is_deleted and not self.node)

    @property
    def _is_collected(self) -> bool:
        return any(one.get("reason") == _BY_COLLECTOR for one in self._conditions)

    @property
    def _silence(self) -> str:
        where = f"its node {self.node}" if self.node else "no node"
        return f"{where} does not prove that the driver has ended"

    @property
    def _status(self) -> Mapping[str, Any]:
        return self.shown.get("status") or {}

    @property
    def _conditions(self) -> list[Mapping[str, Any]]:
        return self._status.get("conditions") or []

    @property
    def _state(self) -> Mapping[str, Any]:
        """The state of the driver's container; empty if its node has reported none."""
        name = self.container
        every = self._status.get("containerStatuses") or ()
        return next((one.get("state") or {} for one in every if one["name"] == name), {})


def _exit_code(code: int) -> int:
    """Return a container's exit code, negative for a signal."""
    return _SIGNAL - code if code > _SIGNAL else code


def _said(one: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (one.get("reason"), one.get("message"))))


def _seconds(time: str | None) -> float:
    return datetime.fromisoformat(time).timestamp() if time else 0.0
