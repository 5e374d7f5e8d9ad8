"""What this process has seen of one driver's pod."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen
from airflow_occ_provider.errors import SubmitterUnreachableError
from airflow_occ_provider.submitters.kubernetes.api import PodApi
from airflow_occ_provider.submitters.kubernetes.manifests import SUBMISSION_LABEL
from airflow_occ_provider.submitters.kubernetes.pod import Pod
from airflow_occ_provider.submitters.kubernetes.pod_log import PodLog

_PROOF_S = 120.0
_EXECUTORS_S = 60.0
_LOG_S = 30.0


@dataclass
class FollowedPod:
    """A driver's pod, its log and its end.

    :param pod: its last known state.
    :param ended: its end, once that is proven.
    :param is_open: whether it is known to have what it needs to start.
    """

    pod: Pod | None = None
    ended: Ended | None = None
    is_open: bool = False
    log: PodLog = field(default_factory=PodLog)
    _said: str = ""
    _is_read: bool = False
    _is_gone: bool = False
    _unproven_since: float = 0.0
    _executors_until: float = 0.0
    _log_until: float = 0.0

    def take(self, pod: Pod) -> Running | Ended | Unseen:
        """Take a state of the pod; return what it proves."""
        self.pod = pod
        return pod.proof(time.time())

    def lost(self, last: Pod | None) -> Ended | Unseen:
        """Return what the last state of a pod that is gone proves."""
        self._is_gone = True
        state = self.take(last) if last else None
        if isinstance(state, Ended):
            return state
        name = f"pod {self.pod.name}" if self.pod else "the pod"
        return Unseen(f"{name} is gone, and its last state does not prove that the driver has ended")

    def end(self, ended: Ended, api: PodApi, submission: str) -> Running | Ended:
        """End the executors that a failed driver left; return its end once they are gone.

        They leave by themselves when they lose their driver. After a minute they count for nothing: an
        executor cannot commit.

        :raises SubmitterUnreachableError: if the cluster does not answer.
        """
        now = time.monotonic()
        self._executors_until = self._executors_until or now + _EXECUTORS_S
        if ended.exit_code and now < self._executors_until:
            left = [one for one in api.executors(f"{SUBMISSION_LABEL}={submission}") if one.is_living]
            for one in left:
                api.end(one)
            if left:
                return Running()
        self.ended = ended
        return ended

    def lines(self, state: Running | Ended | Unseen, api: PodApi) -> list[str] | None:
        """Return lines of the log since the last call; ``None`` if there will be no more.

        :param state: what the last look has proven.
        """
        if self._is_read or (isinstance(state, Unseen) and self._is_unproven):
            return None
        if not isinstance(state, Unseen):
            self._unproven_since = 0.0
        is_over = isinstance(state, Ended)
        found = list(self._news())
        logged = self._logged(api, is_over=is_over)
        if logged is None and is_over and time.monotonic() < self._log_until:
            return found
        found = [*(logged or ()), *found]
        if not is_over:
            return found
        self._is_read = not found
        if self._is_read and logged is None:
            self.log.is_whole = False
        return found or None

    def _logged(self, api: PodApi, *, is_over: bool) -> list[str] | None:
        """Return lines of the container's log; ``None`` if it cannot be read now."""
        self._log_until = self._log_until or (time.monotonic() + _LOG_S if is_over else 0.0)
        if self.pod is None or self._is_gone or not self.pod.has_begun:
            self._log_until = 0.0
            return None if self._is_gone or self.pod is None else []
        try:
            read = partial(api.log, self.pod.name, self.pod.container)
            return self.log.lines(read, is_over=is_over, started=self.pod.started)
        except SubmitterUnreachableError:  # its node does not answer, the API server does
            return None

    def _news(self) -> Iterator[str]:
        """Yield what has changed for people: what the driver waits for, how it ended."""
        said = self.pod.describe() if self.pod else ""
        if self.pod and said != self._said and said:
            yield f"Pod {self.pod.name}: {said}\n"
        self._said = said

    @property
    def _is_unproven(self) -> bool:
        """Whether for minutes nothing has proven whether the driver is alive."""
        self._unproven_since = self._unproven_since or time.monotonic()
        return time.monotonic() - self._unproven_since >= _PROOF_S
