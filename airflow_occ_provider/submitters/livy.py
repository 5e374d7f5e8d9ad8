"""Batches of Apache Livy: drivers that outlive the task, and are found by a name."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.log.facts import read_fact
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Traits, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters.livy_api import (
    Batch,
    LivyApi,
    LivyConnection,
    LivyRefusedError,
    unreadable,
)
from airflow_occ_provider.submitters.livy_batch import FollowedBatch
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.reported import ReportedLines
from airflow_occ_provider.submitters.spark_submit import Flag
from airflow_occ_provider.submitters.twin import twin_error
from airflow_occ_provider.submitters.yarn.resource_manager import MANAGERS_FIELD

_WAITING = ("not_started", "starting")
_LOOK_S = 0.5
_START_S = 10.0
_KILL_S = 2.5  # Airflow ends a task five seconds after its request to stop


@dataclass
class Livy:
    """Run a driver as a batch of Livy.

    Livy keeps the last 200 lines of a log and no exit code, so the driver's facts come from its report:
    while the driver runs, a little late, and whole after its end. Without a report the log counts as
    not read.

    A batch has a name of its own under the task run's identity, and Livy refuses a second batch of the
    same name: a request whose answer was lost is repeated safely, and a later try finds the batch.

    :param hook: Airflow's ``LivyHook``.
    :param batch: the body of the request, see ``livy_batch``; empty to find and end earlier ones.
    :param report: URL of the driver's report, as Hadoop spells it.
    :param report_of: returns the URL of a report, by the key and the attempt's name.
    :param open_report: opens a report, such as ``storage.report.open_report``.
    :param is_on_server: whether Livy runs its batches as processes of its own machine in client mode
        (master ``local`` or ``spark://``) and not on YARN or Kubernetes. Only then is an end final: Livy
        has seen the process end. What a cluster manager counts as ended may still run where it is cut
        off from the manager. A batch with an application id disproves it, and counts as unseen.
    :param origin: more facts of its handles, such as the connections by which a later process reaches
        Livy and the report.
    :param discard: removes a driver's input, given the URL of its report; not in a signal handler.
    :param killed: set when the task was asked to stop.
    :param poll_s: seconds between two looks at a batch and its report.
    :param patience: for a Livy that does not answer.
    """

    name = "livy"

    hook: LivyConnection
    batch: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""
    report_of: Callable[[str, str], str] = lambda _key, _attempt: ""
    open_report: Callable[[str], ReportedLines] | None = None
    is_on_server: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)
    discard: Callable[[str], object] | None = None
    killed: Flag = field(default_factory=Flag)
    poll_s: float = 5.0
    patience: Patience = field(default_factory=partial(Patience, 600, "Livy"))
    traits: Traits = field(init=False)
    _api: LivyApi = field(init=False)
    _batches: dict[str, FollowedBatch] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._api = LivyApi(self.hook)
        self.traits = Traits(
            logs="after" if self.open_report else "none",
            start="findable",
            outlives_task=True,
            end_is_final=self.is_on_server,
            exit_code=True,
        )

    def submit(self, key: str, started: Callable[[Handle], None]) -> Handle:
        """Create the batch, and record it.

        :raises NotSubmittedError: if one of the task run is alive.
        :raises ConfigurationError: if Livy refuses it, or runs it elsewhere than on its own machine.
        :raises SubmitterUnreachableError: if Livy does not answer; ``find`` shows whether it has it.
        """
        twin = self.find(key)
        if twin:
            raise twin_error(twin, "delete the batch")
        handle = self.create(key)
        started(handle)
        if self.is_on_server:
            self._refuse_cluster(handle)
        return handle

    def create(self, key: str, more: Callable[[str], Mapping[str, Any]] = lambda _: {}) -> Handle:
        """Create the batch.

        :param more: returns further fields of the request, given the name of the batch.
        :raises ConfigurationError: if Livy refuses it.
        :raises SubmitterUnreachableError: if Livy does not answer; ``find`` shows whether it has it.
        """
        attempt = posixpath.basename(self.report).removesuffix(".jsonl")
        name = f"{_prefix(key)}{attempt}_{secrets.token_hex(4)}"
        try:
            batch = self._api.create({**self.batch, **more(name), "name": name})
        except LivyRefusedError as refused:
            raise ConfigurationError(
                "batch",
                f"Livy refuses it: {refused}",
                remedy="correct the job's arguments, or let Livy's configuration allow them",
            ) from refused
        if batch.name != name:
            with contextlib.suppress(LivyRefusedError):
                self._api.delete(batch.id)
            raise ConfigurationError(
                "conn_id",
                "this Livy does not name its batches, so that none can be found again",
                remedy="use Livy 0.6 or later",
            )
        return self._handle(batch, self.report)

    def find(self, key: str) -> Handle | None:
        """Return the running batch of a task run.

        :raises SubmitterUnreachableError: if Livy does not answer.
        """
        return next(iter(self.living(key)), None)

    def living(self, key: str) -> list[Handle]:
        """Return the batches of a task run that run as far as Livy knows.

        :raises SubmitterUnreachableError: if Livy does not answer.
        """
        prefix = _prefix(key)
        try:
            found = [one for one in self._api.batches() if one.name.startswith(prefix)]
        except LivyRefusedError as refused:
            raise unreadable("its batches", refused) from refused
        living = [one for one in found if not one.is_over]
        attempts = [one.name.removeprefix(prefix).rpartition("_")[0] for one in living]
        reports = [self.report_of(key, attempt) if attempt else "" for attempt in attempts]
        return [self._handle(*each) for each in zip(living, reports, strict=True)]

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the batch runs.

        One that Livy has forgotten has ended if its report shows that; else it is unseen.
        """
        try:
            return self._look(handle, self._followed(handle))
        except SubmitterUnreachableError as error:
            return Unseen(error.message, is_away=not self.patience.is_over)

    def read(self, handle: Handle, wait_s: float) -> list[str] | None:
        """Return what the driver has reported since the last call; ``None`` after its end.

        After the end, the lines that Livy has kept of the log follow, without the facts among them.

        :raises SubmitterUnreachableError: if Livy has not answered for long.
        """
        if self.killed.is_set():
            self.end(handle)
        followed = self._followed(handle)
        if followed.is_read:
            return None
        early_s = followed.looked_at + self.poll_s - time.monotonic()
        if early_s > 0 and followed.end is None and not followed.is_deleted:
            time.sleep(min(wait_s, early_s))
            if not self.killed.is_set():
                return []
        followed.looked_at = time.monotonic()
        state: Running | Ended | Unseen = Running()
        with self.patience.waiting():
            state = self._look(handle, followed)
        lines = followed.read_report(_LOOK_S, is_last=not isinstance(state, Running))
        if isinstance(state, Running):
            return lines
        followed.is_read = True
        kept = self.kept_lines(handle) if followed.end else []
        if followed.report is None:
            return followed.take(kept) or None
        return [*lines, *(line for line in kept if not read_fact(line))] or None

    def end(self, handle: Handle) -> None:
        """Delete the batch if it runs; Livy answers when its process has ended."""
        followed = self._followed(handle)
        if followed.is_deleted or followed.end:
            return
        try:
            batch = self._begun(handle)
            if batch and not batch.is_over:
                is_process = batch.state == "running" and not batch.application
                is_gone = self._api.delete(batch.id)
                followed.is_deleted = is_gone and (is_process or not self.is_on_server)
                if self.discard and not self.killed.is_set():
                    self.discard(str(handle.facts.get("report") or ""))
        except (SubmitterUnreachableError, LivyRefusedError):
            return  # a request; poll shows whether it runs

    def batch_of(self, handle: Handle) -> Batch | None:
        """Return the batch of a handle; a Livy that was restarted gives its numbers again.

        :raises SubmitterUnreachableError: if Livy does not answer.
        """
        number = handle.facts.get("id")
        try:
            batch = None if number is None else self._api.batch(int(number))
        except (SubmitterUnreachableError, LivyRefusedError) as said:
            error = unreadable(str(handle), said) if isinstance(said, LivyRefusedError) else said
            self.patience.count(str(handle), error)
            raise error from said
        self.patience.reset(str(handle))
        return batch if batch and batch.name == handle.facts.get("batch") else None

    def kept_lines(self, handle: Handle) -> list[str]:
        """Return the log lines that Livy has kept; none if it does not answer."""
        try:
            return [f"{line}\n" for line in self._api.log(int(handle.facts["id"]))]
        except (SubmitterUnreachableError, LivyRefusedError):
            return []

    def _look(self, handle: Handle, followed: FollowedBatch) -> Running | Ended | Unseen:
        if followed.end is None and not followed.is_deleted:
            batch = self.batch_of(handle) or self._forgotten(handle)
            if batch is None:
                return Unseen(f"Livy does not know {handle} any more")
            if self.is_on_server and batch.application:
                return Unseen(f"{handle} is {batch.application}, not a process of Livy's machine")
            if not batch.is_over:
                return Running(is_waiting=batch.state in _WAITING)
            followed.end = batch
        return Ended(followed.final_code(), followed.is_whole)

    def _refuse_cluster(self, handle: Handle) -> None:
        """Refuse, and end, a batch that is no process of Livy's machine."""
        with contextlib.suppress(SubmitterUnreachableError):
            batch = self._begun(handle)
            if batch and batch.application:
                self.end(handle)
                raise ConfigurationError(
                    "conn_id",
                    f"this Livy runs its drivers as {batch.application}, not as a process of its own "
                    "machine, so that it cannot prove their end",
                    remedy="for YARN, name the ResourceManager in the connection's extra as "
                    f"{MANAGERS_FIELD}; else let Livy run them in client mode on local or spark://",
                )

    def _forgotten(self, handle: Handle) -> Batch | None:
        """Return the ended batch that the report of a forgotten one shows, if it does."""
        seen = FollowedBatch.of(handle, self.open_report)
        seen.read_report(_LOOK_S, is_last=False)
        if seen.exit_code is None:
            return None
        state = "dead" if seen.exit_code else "success"
        return Batch(int(handle.facts["id"]), str(handle.facts["batch"]), state, "")

    def _begun(self, handle: Handle) -> Batch | None:
        """Return a batch that has a process: Livy forgets another one without ending it."""
        began = time.monotonic()
        while (batch := self.batch_of(handle)) and batch.state == "starting" and self.is_on_server:
            if time.monotonic() - began > (_KILL_S if self.killed.is_set() else _START_S):
                break
            time.sleep(_LOOK_S)
        return batch

    def _handle(self, batch: Batch, report: str) -> Handle:
        facts = {**self.origin, "id": batch.id, "batch": batch.name, "report": report}
        return Handle(self.name, f"Livy batch {batch.id} ({batch.name})", facts)

    def _followed(self, handle: Handle) -> FollowedBatch:
        name = str(handle.facts.get("batch"))
        if name not in self._batches:
            self._batches[name] = FollowedBatch.of(handle, self.open_report)
        return self._batches[name]


def _prefix(key: str) -> str:
    return f"airflow_occ_{key}_"
