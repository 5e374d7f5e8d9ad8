"""Batches of Apache Livy: drivers that outlive the task, and are found by a name."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.attempts.log.facts import read_fact
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Traits, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    SubmitterUnreachableError,
    TableUnreadableError,
)
from airflow_occ_provider.submitters.livy_api import Batch, LivyApi, LivyConnection, LivyRefusedError
from airflow_occ_provider.submitters.livy_batch import FollowedBatch, ReportedLines
from airflow_occ_provider.submitters.spark_submit import Flag

_LOOK_S = 0.5
_START_S = 10.0
_KILL_S = 2.5  # Airflow ends a task five seconds after its request to stop
_READS = 3


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
    :param patience_s: seconds for which Livy may not answer before the driver is given up.
    """

    name = "livy"

    hook: LivyConnection
    batch: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""
    open_report: Callable[[str], ReportedLines] | None = None
    is_on_server: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)
    discard: Callable[[str], object] | None = None
    killed: Flag = field(default_factory=Flag)
    poll_s: float = 5.0
    patience_s: float = 600.0
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

        :raises ConfigurationError: if Livy refuses it, or runs it elsewhere than on its own machine.
        :raises SubmitterUnreachableError: if Livy does not answer; ``find`` shows whether it has it.
        """
        name = f"{_prefix(key)}{secrets.token_hex(4)}"
        try:
            batch = self._api.create({**self.batch, "name": name})
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
                "livy_conn_id",
                "this Livy does not name its batches, so that none can be found again",
                remedy="use Livy 0.6 or later",
            )
        handle = self._handle(batch)
        started(handle)
        if self.is_on_server:
            self._refuse_cluster(handle)
        return handle

    def find(self, key: str) -> Handle | None:
        """Return the running batch of a task run.

        :raises SubmitterUnreachableError: if Livy does not answer.
        """
        try:
            found = [one for one in self._api.batches() if one.name.startswith(_prefix(key))]
        except LivyRefusedError as refused:
            raise _unreadable("its batches", refused) from refused
        return next((self._handle(one) for one in found if not one.is_over), None)

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the batch runs.

        One that Livy has forgotten has ended if its report shows that; else it is unseen.
        """
        try:
            return self._look(handle, self._followed(handle))
        except SubmitterUnreachableError as error:
            return Unseen(error.message, is_away=True)

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
        state = self._patiently(handle, followed)
        lines = followed.take(self._reported(followed, is_last=not isinstance(state, Running)))
        if isinstance(state, Running):
            return lines
        followed.is_read = True
        kept = self._kept(handle) if followed.end else []
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
                is_gone = self._api.delete(batch.id)
                is_process = batch.state == "running" and not batch.application
                followed.is_deleted = is_gone and (is_process or not self.is_on_server)
                if self.discard and not self.killed.is_set():
                    self.discard(str(handle.facts.get("report") or ""))
        except (SubmitterUnreachableError, LivyRefusedError):
            return  # a request; poll shows whether it runs

    def _look(self, handle: Handle, followed: FollowedBatch) -> Running | Ended | Unseen:
        if followed.end is None and not followed.is_deleted:
            batch = self._batch(handle) or self._forgotten(handle)
            if batch is None:
                return Unseen(f"Livy does not know {handle} any more")
            if self.is_on_server and batch.application:
                return Unseen(f"{handle} is {batch.application}, not a process of Livy's machine")
            if not batch.is_over:
                return Running()
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
                    remedy="let Livy run them in client mode on local or spark://, or submit to the "
                    "cluster by a Spark connection",
                )

    def _forgotten(self, handle: Handle) -> Batch | None:
        """Return the ended batch that the report of a forgotten one shows, if it does."""
        seen = self._unfollowed(handle)
        seen.take(self._reported(seen, is_last=False))
        if seen.exit_code is None:
            return None
        state = "dead" if seen.exit_code else "success"
        return Batch(int(handle.facts["id"]), str(handle.facts["batch"]), state, "")

    def _patiently(self, handle: Handle, followed: FollowedBatch) -> Running | Ended | Unseen:
        now = followed.looked_at = time.monotonic()
        try:
            state = self._look(handle, followed)
        except SubmitterUnreachableError:
            followed.silent_since = followed.silent_since or now
            if now - followed.silent_since > self.patience_s:
                raise
            return Running()
        followed.silent_since = None
        return state

    def _reported(self, followed: FollowedBatch, *, is_last: bool) -> list[str]:
        for _ in range(_READS if is_last else 1):
            try:
                return followed.report.lines() if followed.report else []
            except TableUnreadableError:
                time.sleep(_LOOK_S)
        return []

    def _kept(self, handle: Handle) -> list[str]:
        try:
            return [f"{line}\n" for line in self._api.log(int(handle.facts["id"]))]
        except (SubmitterUnreachableError, LivyRefusedError):
            return []

    def _begun(self, handle: Handle) -> Batch | None:
        """Return a batch that has a process: Livy forgets another one without ending it."""
        began = time.monotonic()
        while (batch := self._batch(handle)) and batch.state == "starting" and self.is_on_server:
            if time.monotonic() - began > (_KILL_S if self.killed.is_set() else _START_S):
                break
            time.sleep(_LOOK_S)
        return batch

    def _batch(self, handle: Handle) -> Batch | None:
        """Return the batch of a handle; a Livy that was restarted gives its numbers again."""
        number = handle.facts.get("id")
        try:
            batch = None if number is None else self._api.batch(int(number))
        except LivyRefusedError as refused:
            raise _unreadable(str(handle), refused) from refused
        return batch if batch and batch.name == handle.facts.get("batch") else None

    def _handle(self, batch: Batch) -> Handle:
        facts = {**self.origin, "id": batch.id, "batch": batch.name, "report": self.report}
        return Handle(self.name, f"Livy batch {batch.id} ({batch.name})", facts)

    def _followed(self, handle: Handle) -> FollowedBatch:
        name = str(handle.facts.get("batch"))
        if name not in self._batches:
            self._batches[name] = self._unfollowed(handle)
        return self._batches[name]

    def _unfollowed(self, handle: Handle) -> FollowedBatch:
        url = str(handle.facts.get("report") or "")
        return FollowedBatch(self.open_report(url) if url and self.open_report else None)


def _prefix(key: str) -> str:
    return f"airflow_occ_{key}_"


def _unreadable(what: str, refused: LivyRefusedError) -> SubmitterUnreachableError:
    return SubmitterUnreachableError(
        f"Livy refuses to show {what}: {refused}", remedy="check the Livy connection"
    )
