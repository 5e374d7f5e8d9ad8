"""Batches of a Livy that runs them in YARN's cluster mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_occ_provider.attempts.start_limit import late_start
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Traits, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    NotSubmittedError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_api import Batch
from airflow_occ_provider.submitters.reported import ReportedDriver
from airflow_occ_provider.submitters.twin import twin_error
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.resource_manager import MANAGERS_FIELD
from airflow_occ_provider.submitters.yarn.submission_conf import protected_conf

_LOOK_S = 0.5
_PROOF_S = 120.0
_TAIL = 60


@dataclass
class LivyOnYarn:
    """Run a driver as a batch of Livy, and follow its application in YARN.

    The name of a batch is also a tag of its application, by which the ResourceManager shows it even if
    Livy has forgotten the batch. State, log and end are YARN's. If YARN has lost the end of the log,
    the driver's report is read in its place.

    :param livy: of the batches, with ``is_on_server=False``.
    :param yarn: of the cluster in which Livy runs them.
    """

    name = Livy.name

    livy: Livy
    yarn: YarnCluster
    traits: Traits = field(init=False)
    _applications: dict[str, str] = field(default_factory=dict, init=False)
    _reports: dict[str, ReportedDriver] = field(default_factory=dict, init=False)
    _void: set[str] = field(default_factory=set, init=False)
    _unseen_since: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.traits = self.yarn.traits

    def submit(self, key: str, started: Callable[[Handle], None]) -> Handle:
        """Create the batch and record it, then its application.

        :raises NotSubmittedError: if Livy submitted none, or one of the task run is alive.
        :raises ConfigurationError: if Livy refuses the batch, or runs it elsewhere.
        :raises SubmitterUnreachableError: if Livy does not answer; ``find`` shows whether it has it.
        """

        def tagged(name: str) -> Mapping[str, Any]:
            return {"conf": protected_conf(key, self.livy.batch.get("conf", {}), submission=name)}

        twin = self.find(key)
        if twin:
            raise twin_error(twin, "kill the application")
        handle = self.livy.create(key, tagged)
        started(handle)
        try:
            submitted = self._submitted(handle)
        except ConfigurationError:
            self.end(handle)
            raise
        if submitted:
            started(submitted)
        if self.livy.killed.is_set():
            self.end(submitted or handle)
        return submitted or handle

    def find(self, key: str) -> Handle | None:
        """Return the living batch of a task run, or its application alone.

        Livy learns of an application's end some seconds after YARN: YARN decides.

        :raises SubmitterUnreachableError: if Livy or the ResourceManager does not answer.
        """
        batches = [(batch, self._found(batch)) for batch in self.livy.living(key)]
        application = self.yarn.living(key)
        name = application.facts["application"] if application else None
        for batch, known in batches:
            if known is None or known.facts["application"] == name:
                return known or batch
        if application is None:
            return None
        return Handle(self.name, str(application), {**self.livy.origin, **application.facts})

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver is alive, as far as YARN proves it.

        A batch runs while Livy starts it. One that Livy has ended without an application has ended once
        its input is removed: an application that comes later finds nothing to run.
        """
        try:
            state = self._look(handle)
        except ConfigurationError as error:
            state = Unseen(error.message)
        except SubmitterUnreachableError as error:
            state = Unseen(error.message, is_away=self._unseen_s() < self.livy.patience.limit_s)
        if not isinstance(state, Unseen):
            self._unseen_since = None
        if isinstance(state, Ended) and not state.log_is_whole and self._report(handle).is_whole:
            return replace(state, log_is_whole=True)
        return state

    def read(self, handle: Handle, wait_s: float) -> list[str] | None:
        """Return the driver's lines since the last call; ``None`` after its end.

        :raises SubmitterUnreachableError: if the driver has been unseen for long.
        """
        if self.livy.killed.is_set():
            self.end(handle)
        state = None if self._known(handle) else self.poll(handle)
        known = self._known(handle)
        if known:
            lines = self.yarn.read(known, wait_s)
            return self._rest(handle, known) if lines is None else lines
        if isinstance(state, Ended):
            return self._once(handle, self.livy.kept_lines)
        if isinstance(state, Unseen) and not state.is_away and self._unseen_s() >= _PROOF_S:
            raise SubmitterUnreachableError(
                f"{state.reason}: whether it commits is unknown",
                remedy="look for its application in YARN; the next try follows it",
            )
        time.sleep(wait_s)
        return []

    def end(self, handle: Handle) -> None:
        """Kill the application, or have Livy end the batch; remove the driver's input.

        The ResourceManager is asked first, since it answers at once: Airflow kills a task 5 s after its
        request to stop. Livy waits for an application that it is starting.
        """
        if not self._kill(handle):
            self.livy.end(handle)
            self._kill(handle)
        self._discard(handle)

    def _kill(self, handle: Handle) -> bool:
        """Kill the application, if there is one; whether its end is proven."""
        with suppress(SubmitterUnreachableError):
            known = self._known(handle) or self._found(handle)
            if known:
                self.yarn.end(known)
                return isinstance(self.yarn.poll(known), Ended)
        return False

    def _look(self, handle: Handle) -> Running | Ended | Unseen:
        """Ask YARN, and before that Livy if the application is not known yet."""
        if handle.name in self._void:
            return Ended(1)
        batch, silence = None, None
        if not self._known(handle):
            try:
                batch = self.livy.batch_of(handle)
            except SubmitterUnreachableError as error:
                silence = error
        known = self._known(handle) or self._found(handle)
        if known:
            return self.yarn.poll(known)
        if silence:
            raise silence
        return self._without_application(handle, batch)

    def _without_application(self, handle: Handle, batch: Batch | None) -> Running | Ended | Unseen:
        """Return the state of a batch of which YARN showed no application after Livy's answer.

        :raises ConfigurationError: if Livy runs it elsewhere.
        """
        if batch is None:
            return Unseen(f"neither Livy nor the ResourceManager knows {handle}")
        if batch.application or batch.state in ("running", "success"):
            addresses = " and ".join(self.yarn.manager.addresses)
            raise ConfigurationError(
                MANAGERS_FIELD,
                f"{addresses} shows no application of {handle}, which Livy runs "
                f"({batch.application or batch.state})",
                remedy="give the ResourceManagers of Livy's cluster; remove the field if Livy runs its "
                "batches as processes of its own machine",
            )
        if not batch.is_over:
            return Running(is_waiting=True)
        if self._discard(handle) and not self._found(handle):
            self._void.add(handle.name)
            return Ended(1)
        return Unseen(f"Livy has ended {handle} without an application, which may come yet")

    def _submitted(self, handle: Handle) -> Handle | None:
        """Wait for the application; return the handle with its id, or ``None`` to follow the batch.

        The batch is followed too if Livy takes long to start it: that may need no slot of a worker.
        """
        with suppress(SubmitterUnreachableError):
            begun_s, limit = time.monotonic(), self.yarn.start_limit.on_worker
            while not (self.livy.killed.is_set() or late_start(time.monotonic() - begun_s, limit)):
                state = self._look(handle)
                if handle.name in self._void:
                    said = "".join(self.livy.kept_lines(handle)[-_TAIL:])
                    raise NotSubmittedError(
                        f"Livy has ended {handle} before it submitted anything:\n{said}",
                        remedy="correct what spark-submit says",
                    )
                known = self._known(handle)
                if known or isinstance(state, Unseen):
                    return known
                time.sleep(_LOOK_S)
        return None

    def _known(self, handle: Handle) -> Handle | None:
        """Return the handle with its application, if that is known."""
        name = handle.facts.get("application") or self._applications.get(handle.name)
        return replace(handle, facts={**handle.facts, "application": name}) if name else None

    def _found(self, handle: Handle) -> Handle | None:
        """Return the handle with the application that has its tag, if there is one."""
        tag = str(handle.facts.get("batch") or "")
        for one in self.yarn.manager.applications(tag, patience_s=0) if tag else ():
            self._applications.setdefault(handle.name, one.id)
        return self._known(handle)

    def _rest(self, handle: Handle, known: Handle) -> list[str] | None:
        """Return the report of a driver of whose log YARN has lost the end, once."""
        state = self.yarn.poll(known)
        if isinstance(state, Ended) and state.log_is_whole:
            return None
        report = self._report(handle)
        return self._once(handle, lambda _: report.read_report(_LOOK_S, is_last=True))

    def _once(self, handle: Handle, read: Callable[[Handle], list[str]]) -> list[str] | None:
        report = self._report(handle)
        if report.is_read:
            return None
        report.is_read = True
        return read(handle) or None

    def _report(self, handle: Handle) -> ReportedDriver:
        if handle.name not in self._reports:
            self._reports[handle.name] = ReportedDriver.of(handle, self.livy.open_report)
        return self._reports[handle.name]

    def _discard(self, handle: Handle) -> bool:
        """Remove the driver's input; whether it is gone. A signal handler does not."""
        if not self.livy.discard or self.livy.killed.is_set():
            return False
        return bool(self.livy.discard(str(handle.facts.get("report") or "")))

    def _unseen_s(self) -> float:
        """Return the seconds for which it has been unknown whether the driver is alive."""
        if self._unseen_since is None:
            self._unseen_since = time.monotonic()
        return time.monotonic() - self._unseen_since
