"""``spark-submit`` to Kubernetes in cluster mode, where a pod runs the driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_occ_provider.attempts.start_limit import NO_LIMIT, StartLimit
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Traits, Unseen
from airflow_occ_provider.errors import NotSubmittedError, SubmitterUnreachableError
from airflow_occ_provider.submitters.kubernetes.api import PodApi
from airflow_occ_provider.submitters.kubernetes.followed import FollowedPod
from airflow_occ_provider.submitters.kubernetes.manifests import (
    IDENTITY_LABEL,
    SUBMISSION_LABEL,
    identity_label,
    protected_conf,
    secret,
    submission_name,
)
from airflow_occ_provider.submitters.kubernetes.pod import Pod
from airflow_occ_provider.submitters.launcher import Launcher
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.processes import end_survivors
from airflow_occ_provider.submitters.spark_submit import Flag
from airflow_occ_provider.submitters.twin import twin_error

_NAME = "kubernetes"
_LOOK_S = 0.2
_TAIL = 20


@dataclass
class KubernetesCluster:
    """Run one ``spark-submit`` command whose driver runs in a pod.

    The pod needs a Secret with the driver's input. The Secret is created once the driver is recorded:
    until then the pod cannot start, and one that is not recorded never does.

    :param api: the cluster to which the command submits, and its namespace.
    :param ending: the same with a connection of its own: a signal handler must not wait for the call
        that it interrupts.
    :param command: returns the command for the configuration of one submission, see
        ``protected_conf``.
    :param conf: the user's configuration.
    :param content: the driver's input: files by name.
    :param environment: of ``spark-submit``; ``None`` for that of this process.
    :param origin: more facts of its handles: how a later process reaches the cluster.
    :param killed: set when the task was asked to stop.
    :param end_s: the longest wait of ``end``: Airflow kills a task 5 s after its request to stop.
    :param poll_s: seconds between two looks of ``read`` at a pod.
    :param patience: for a cluster that does not answer.
    :param start_limit: how long ``spark-submit`` may take.
    """

    name = _NAME
    traits = Traits(logs="live", start="gated", outlives_task=True, end_is_final=True, exit_code=True)

    api: PodApi
    ending: PodApi
    command: Callable[[Mapping[str, str]], Sequence[str]] = lambda _: ()
    conf: Mapping[str, object] = field(default_factory=dict)
    content: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    killed: Flag = field(default_factory=Flag)
    end_s: float = 3.5
    poll_s: float = 2.0
    patience: Patience = field(default_factory=Patience)
    start_limit: StartLimit = NO_LIMIT
    _launcher: Launcher = field(default_factory=Launcher, init=False)
    _pods: dict[str, FollowedPod] = field(default_factory=dict, init=False)
    _looked_s: float = field(default=float("-inf"), init=False)

    def submit(self, key: str, started: Callable[[Handle], None]) -> Handle:
        """Run ``spark-submit``, record the pod that it made, and let that start.

        :raises NotSubmittedError: if ``spark-submit`` failed, or a driver of the task run is alive: the
            task may have been queued for hours since it looked.
        :raises SubmitterUnreachableError: if there is no pod, or the cluster does not answer.
        """
        submission = submission_name(key)
        conf = protected_conf(key, self.conf, submission=submission, namespace=self.api.namespace)
        environment = os.environ if self.environment is None else self.environment
        command = self.command(conf)
        environment = {**environment, IDENTITY_VARIABLE: key}
        limit = self.start_limit.on_worker
        code = self._launcher.run(command, environment, key, self.killed, limit)
        pod = self._submitted(submission, code)
        handle = self._handle(key, pod)
        try:
            self._refuse_twin(key, pod)
            started(handle)
            if not self.killed.is_set():
                manifest = secret(submission, key, self.content, pod=pod.name, uid=pod.uid)
                self.api.create_secret(manifest)
        except BaseException:
            with suppress(SubmitterUnreachableError):  # without its Secret it does nothing
                self._end(self.api, handle, pod)
            raise
        self._followed(handle).is_open = True
        if self.killed.is_set():
            self.end(handle)
        return handle

    def find(self, key: str) -> Handle | None:
        """Return the living driver of a task run; end what was left before it could start.

        :raises SubmitterUnreachableError: if the cluster does not answer.
        """
        end_survivors(key)  # a spark-submit that an earlier try left
        found = None
        for pod in self.api.drivers(_selector(key)):
            handle = self._handle(key, pod)
            if isinstance(self._followed(handle).take(pod), Running):
                if self._opens(self.api, handle, pod):
                    found = found or handle
                else:
                    self.api.delete(pod)
        return found

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver is alive, as far as its node proves it."""
        followed = self._followed(handle)
        try:
            state = self._look(handle)
        except SubmitterUnreachableError as error:
            return Unseen(str(error), is_away=not self.patience.is_over)
        if isinstance(state, Ended) and not followed.log.is_whole:
            return replace(state, log_is_whole=False)
        return state

    def read(self, handle: Handle, wait_s: float) -> list[str] | None:
        """Return lines of ``spark-submit``, then of the driver; ``None`` after its end.

        ``None`` also if the pod is gone, or its node is lost, and for minutes nothing proves that the
        driver has ended: then ``poll`` returns ``Unseen``.

        :raises SubmitterUnreachableError: if the cluster has not answered for long.
        """
        if self.killed.is_set():
            self.end(handle)
        lines: list[str] | None = self._launcher.said()
        if not lines and time.monotonic() - self._looked_s >= (self.poll_s if wait_s else 0):
            self._looked_s = time.monotonic()
            with self.patience.waiting():
                lines = self._followed(handle).lines(self._look(handle), self.api)
        if lines == []:
            time.sleep(wait_s)
        return lines

    def end(self, handle: Handle) -> None:
        """Have the pod ended, and wait a little for its node to say so."""
        followed, deadline = self._followed(handle), time.monotonic() + self.end_s
        if followed.ended:
            return
        asked = False
        with suppress(SubmitterUnreachableError):  # poll shows it
            while time.monotonic() < deadline:
                pod = _same(handle, self.ending.pod(str(handle.facts.get("pod"))))
                if pod is None or not isinstance(pod.proof(time.time()), Running):
                    return
                if not asked:
                    self._end(self.ending, handle, pod)
                asked = True
                time.sleep(_LOOK_S)

    def forget(self, key: str) -> None:
        """Remove the pods of a task run's drivers, with all that they own.

        :raises SubmitterUnreachableError: if the cluster does not answer.
        """
        for pod in self.api.drivers(_selector(key)):
            self.api.delete(pod)

    def _look(self, handle: Handle) -> Running | Ended | Unseen:
        """Look at the pod.

        :raises SubmitterUnreachableError: if the cluster does not answer.
        """
        followed = self._followed(handle)
        if followed.ended:
            return followed.ended
        try:
            pod = _same(handle, self.api.pod(str(handle.facts.get("pod"))))
            state = followed.take(pod) if pod else self._gone(followed)
            if pod:
                self._close(handle, pod, state)
            if isinstance(state, Ended):
                state = followed.end(state, self.api, str(handle.facts.get("submission")))
        except SubmitterUnreachableError as error:
            self.patience.count(str(handle), error, self.api.address)
            raise
        self.patience.reset(str(handle))
        return state

    def _gone(self, followed: FollowedPod) -> Running | Ended | Unseen:
        return followed.lost(self.api.last_state(followed.pod) if followed.pod else None)

    def _close(self, handle: Handle, pod: Pod, state: object) -> None:
        """End a pod that can never start: its submitter died before it created the Secret."""
        if isinstance(state, Running) and not self._opens(self.api, handle, pod):
            self.api.delete(pod)

    def _end(self, api: PodApi, handle: Handle, pod: Pod) -> None:
        """Have a pod ended. One that waits for its Secret does not see a deadline for two minutes."""
        (api.end if self._opens(api, handle, pod) else api.delete)(pod)

    def _opens(self, api: PodApi, handle: Handle, pod: Pod) -> bool:
        """Return whether a pod has what it needs to start."""
        followed = self._followed(handle)
        if not followed.is_open:
            name = str(handle.facts.get("submission"))
            followed.is_open = pod.has_begun or api.has_secret(name)
        return followed.is_open

    def _submitted(self, submission: str, code: int) -> Pod:
        """Return the pod of a submission.

        :raises NotSubmittedError: if ``spark-submit`` failed.
        :raises SubmitterUnreachableError: if there is none, or the cluster does not answer.
        """
        found = self.api.drivers(f"{SUBMISSION_LABEL}={submission}")
        if found and not code:
            return found[0]
        for pod in found:  # incomplete
            self.api.delete(pod)
        said = "".join(self._launcher.said()[-_TAIL:])
        if code:
            raise NotSubmittedError(
                f"spark-submit failed with exit code {code}:\n{said}",
                remedy="correct what spark-submit says",
            )
        raise SubmitterUnreachableError(
            f"spark-submit ended with exit code 0, and the cluster at {self.api.address} shows no pod "
            f"with the label {SUBMISSION_LABEL}={submission}:\n{said}",
            remedy="name the cluster of the Spark connection's master in kubernetes_conn_id",
        )

    def _refuse_twin(self, key: str, own: Pod) -> None:
        """Refuse a second driver of the task run; the first is followed by another process.

        :raises NotSubmittedError: if there is a living one.
        """
        for pod in self.api.drivers(_selector(key)):
            handle = self._handle(key, pod)
            is_alive = isinstance(self._followed(handle).take(pod), Running)
            if pod.uid != own.uid and is_alive and self._opens(self.api, handle, pod):
                raise twin_error(handle, "delete the pod")

    def _handle(self, key: str, pod: Pod) -> Handle:
        facts = {
            **self.origin,
            "key": key,
            "namespace": self.api.namespace,
            "pod": pod.name,
            "uid": pod.uid,
            "submission": pod.label(SUBMISSION_LABEL),
        }
        return Handle(_NAME, f"pod {self.api.namespace}/{pod.name}", facts)

    def _followed(self, handle: Handle) -> FollowedPod:
        return self._pods.setdefault(str(handle.facts.get("uid")), FollowedPod())


def _selector(key: str) -> str:
    return f"{IDENTITY_LABEL}={identity_label(key)}"


def _same(handle: Handle, pod: Pod | None) -> Pod | None:
    """Return a pod if it is the handle's, and not another one of its name."""
    return pod if pod and pod.uid == handle.facts.get("uid") else None
