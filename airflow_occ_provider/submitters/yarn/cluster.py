"""``spark-submit`` in YARN's cluster mode, where a container runs the driver."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from airflow_occ_provider.attempts.start_limit import NO_LIMIT, StartLimit
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Traits, Unseen
from airflow_occ_provider.errors import NotSubmittedError, SubmitterUnreachableError
from airflow_occ_provider.submitters.launcher import Launcher
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.processes import end_survivors
from airflow_occ_provider.submitters.spark_submit import Flag
from airflow_occ_provider.submitters.twin import twin_error
from airflow_occ_provider.submitters.yarn.driver_log import DriverLog, OpenLog, open_aggregated
from airflow_occ_provider.submitters.yarn.listing import RunningApplications
from airflow_occ_provider.submitters.yarn.resource_manager import Application, ResourceManager
from airflow_occ_provider.submitters.yarn.submission_conf import identity_tag, protected_conf

_NAME = "yarn"
_LOOK_S = 0.2
_TAIL = 20
_PROOF_S = 120.0


@dataclass
class YarnCluster:
    """Run one ``spark-submit`` command whose driver runs in YARN.

    :param manager: the ResourceManager of the cluster to which the command submits.
    :param command: returns the command for the configuration of one submission, see
        ``protected_conf``.
    :param conf: the user's configuration.
    :param environment: of ``spark-submit``; ``None`` for that of this process.
    :param open_log: opens aggregated logs: without it the end of a log is lost.
    :param killed: set when the task was asked to stop.
    :param running: of the cluster, shared with others that follow drivers there.
    :param end_s: the longest wait of ``end``: Airflow kills a task 5 s after its request to stop.
    :param patience: for a ResourceManager that does not answer; then its driver is unseen.
    :param start_limit: how long ``spark-submit`` may take.
    """

    name = _NAME
    traits = Traits(logs="live", start="findable", outlives_task=True, end_is_final=True, exit_code=True)

    manager: ResourceManager
    command: Callable[[Mapping[str, str]], Sequence[str]] = lambda _: ()
    conf: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    open_log: OpenLog | None = None
    killed: Flag = field(default_factory=Flag)
    running: RunningApplications | None = None
    end_s: float = 3.5
    patience: Patience = field(default_factory=partial(Patience, service="the ResourceManager"))
    start_limit: StartLimit = NO_LIMIT
    _launcher: Launcher = field(default_factory=Launcher, init=False)
    _logs: dict[str, DriverLog] = field(default_factory=dict, init=False)
    _ends: dict[str, Ended] = field(default_factory=dict, init=False)
    _asked_to_end: set[str] = field(default_factory=set, init=False)
    _unproven_since: float = field(default=0.0, init=False)

    def submit(self, key: str, started: Callable[[Handle], None]) -> Handle:
        """Run ``spark-submit`` to its end, then record the application that it made.

        :raises NotSubmittedError: if ``spark-submit`` failed, or was not run because an application of
            the task run is alive: the task may have been queued for hours since it looked.
        :raises SubmitterUnreachableError: if there is none, or the ResourceManager does not answer.
        """
        submission = f"{identity_tag(key)}_{secrets.token_hex(4)}"
        command = self.command(protected_conf(key, self.conf, submission=submission))
        environment = os.environ if self.environment is None else self.environment
        self._refuse_twin(key)
        environment = {**environment, IDENTITY_VARIABLE: key}
        limit = self.start_limit.on_worker
        code = self._launcher.run(command, environment, key, self.killed, limit)
        found = self.manager.applications(submission)
        if not found:
            said = "".join(self._launcher.said()[-_TAIL:])
            if code:
                raise NotSubmittedError(
                    f"spark-submit failed with exit code {code}, before it submitted anything:\n{said}",
                    remedy="correct what spark-submit says",
                )
            raise SubmitterUnreachableError(
                f"spark-submit ended with exit code {code}, and {' and '.join(self.manager.addresses)} "
                f"shows no application with the tag {submission}:\n{said}",
                remedy="correct what spark-submit says; if it submitted an application, kill that, and "
                "give the ResourceManager of its cluster",
            )
        handle = self._handle(key, found[0])
        started(handle)
        if self.killed.is_set():
            self.end(handle)
        return handle

    def find(self, key: str) -> Handle | None:
        """Return the living application of a task run.

        A ``spark-submit`` that an earlier try left on this host is ended first: it would submit later.

        :raises SubmitterUnreachableError: if the ResourceManager does not answer.
        """
        end_survivors(key)
        return self.living(key)

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver is alive, as far as YARN proves it."""
        name = handle.facts.get("application", "")
        ended, log = self._ends.get(name), self._logs.get(name)
        if ended and log and not log.is_whole:
            return replace(ended, log_is_whole=False)
        try:
            return ended or self._look(handle)[1]
        except SubmitterUnreachableError as error:
            return Unseen(str(error), is_away=not self.patience.is_over)

    def read(self, handle: Handle, wait_s: float) -> list[str] | None:
        """Return lines of ``spark-submit``, then of the driver; ``None`` after its end.

        ``None`` also if YARN has ended or forgotten the application, but for minutes does not prove that
        its container ended: then ``poll`` returns ``Unseen``.

        :raises SubmitterUnreachableError: if the ResourceManager has not answered for too long.
        """
        if self.killed.is_set():
            self.end(handle)
        lines: list[str] | None = self._launcher.said()
        if not lines:
            with self.patience.waiting():
                lines = self._lines(handle)
        if lines == []:
            time.sleep(wait_s)
        return lines

    def end(self, handle: Handle) -> None:
        """Kill the application and wait a little for the end of its container."""
        if handle.facts.get("application"):
            self._asked_to_end.add(handle.facts["application"])
            with suppress(SubmitterUnreachableError):  # poll shows it
                self._manager(handle).kill(handle.facts["application"])
        deadline = time.monotonic() + self.end_s
        while isinstance(self.poll(handle), Running) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def _lines(self, handle: Handle) -> list[str] | None:
        application, state = self._look(handle)
        if application is None or (application.is_over and isinstance(state, Unseen)):
            self._unproven_since = self._unproven_since or time.monotonic()
            return [] if time.monotonic() - self._unproven_since < _PROOF_S else None
        self._unproven_since = 0.0
        if application.container is None:
            return None if isinstance(state, Ended) else []
        log = self._logs.setdefault(application.id, DriverLog(self.open_log))
        if not isinstance(state, Ended):
            return log.live(application.container)
        return log.after(application.container, application.id, application.user, application.logs)

    def _look(self, handle: Handle) -> tuple[Application | None, Running | Ended | Unseen]:
        name = handle.facts.get("application", "")
        try:
            application = self._source(handle, name).application(name) if name else None
        except SubmitterUnreachableError as error:
            self.patience.count(str(handle), error, " and ".join(self._manager(handle).addresses))
            raise
        self.patience.reset(str(handle))
        state = self._ends.get(name) or self._state(application)
        if isinstance(state, Ended):
            self._ends[name] = state
        return application, state

    def _source(self, handle: Handle, name: str) -> ResourceManager | RunningApplications:
        """Return what knows an application's state; a kill must show at once."""
        manager = self._manager(handle)
        is_listed = manager is self.manager and name not in self._asked_to_end
        return self.running if self.running and is_listed else manager

    def _manager(self, handle: Handle) -> ResourceManager:
        """Return the cluster of a handle: the user may have moved to another one since."""
        addresses = tuple(handle.facts.get("resource_managers", ()))
        is_ours = addresses in ((), self.manager.addresses)
        return self.manager if is_ours else ResourceManager(addresses)

    def living(self, key: str) -> Handle | None:
        """Return the living application of a task run.

        :raises SubmitterUnreachableError: if the ResourceManager does not answer.
        """
        for application in self.manager.applications(identity_tag(key)):
            if isinstance(self._state(application), Running):
                return self._handle(key, application)
        return None

    def _refuse_twin(self, key: str) -> None:
        """Refuse a second driver of the task run; the first one is followed elsewhere.

        :raises NotSubmittedError: if there is a living one.
        """
        twin = self.living(key)
        if twin:
            raise twin_error(twin, "kill the application")

    def _handle(self, key: str, application: Application) -> Handle:
        managers = list(self.manager.addresses)
        facts = {"key": key, "application": application.id, "resource_managers": managers}
        return Handle(_NAME, f"YARN {application.id}", facts)

    def _state(self, application: Application | None) -> Running | Ended | Unseen:
        """Return what YARN proves; a final state alone does not prove an end.

        A killed application is ``KILLED`` before its node ends the container, and one whose node is lost
        is ``FAILED`` while its container may run on. Its node proves the end, or the logs that the node
        has aggregated.
        """
        if application is None:
            return Unseen("YARN does not know the application")
        if not application.is_over:
            return Running(is_waiting=application.container is None)
        if not application.started_ms:
            return Unseen("the ResourceManager hides the application from this user")
        container = application.container
        lives = container.lives(application.started_ms) if container else False
        if container and lives is None:
            with suppress(OSError):
                logs = open_aggregated(self.open_log, container, application.id, application.user)
                if logs:
                    logs.close()
                    lives = False
        if container and lives is None:
            return Unseen(
                f"{application.id} is {application.state}, but its node {container.node} does not prove "
                "that the driver has ended"
            )
        return Running() if lives else Ended(application.exit_code)
