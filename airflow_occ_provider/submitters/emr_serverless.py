"""Job runs of EMR Serverless: drivers that outlive the task, found by a name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.log.facts import read_fact
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Traits, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    NotSubmittedError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters.emr_serverless_api import (
    EmrRefusedError,
    EmrServerlessApi,
    EmrServerlessClient,
    JobRun,
)
from airflow_occ_provider.submitters.emr_serverless_job import FollowedRun, run_token, token_prefix
from airflow_occ_provider.submitters.emr_serverless_log import OpenFile, driver_log
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.reported import ReportedLines
from airflow_occ_provider.submitters.signal_call import call_apart
from airflow_occ_provider.submitters.spark_submit import Flag
from airflow_occ_provider.submitters.twin import twin_error

_WAITING = ("SUBMITTED", "PENDING", "QUEUED", "SCHEDULED")
_LOOK_S = 0.5
_AGAIN_S = 5.0  # between two requests to cancel
_KILL_S = 2.5  # Airflow ends a task five seconds after its request to stop
_LOG_S = 30.0  # EMR Serverless writes the logs every 15 s


@dataclass
class EmrServerless:
    """Run a driver as a job run of EMR Serverless.

    The service gives neither an exit code nor a live log: the driver's facts come from its report, while
    it runs a little late, and whole after its end. Without a report the log counts as not read.

    A job run's name and client token are one: the task run's identity and the attempt's name. A request
    whose answer was lost is repeated safely, and a later try finds the run.

    An end is final if the driver has reported it, or if the run succeeded or was cancelled, which
    releases its resources. A run that failed without a word of its driver may have lost only the contact
    to it: then ``traits.end_is_final`` is ``False``, and the table's heartbeats decide.

    :param client: boto3's client ``emr-serverless``, with time-outs.
    :param application: id of the application.
    :param request: of the job run, see ``job_run_request``; empty to find and end earlier ones.
    :param report: URL of the driver's report, as Hadoop spells it; its name is the attempt's.
    :param report_of: returns the URL of a report, by the key and the attempt's name.
    :param open_report: opens a report, such as ``storage.report.open_report``.
    :param log_uri: where the service writes its logs.
    :param open_log: opens a file of the logs; without it they are not read.
    :param origin: more facts of its handles, such as the connections by which a later process reaches
        the service and the report.
    :param discard: removes a driver's input, given the URL of its report; not in a signal handler.
    :param killed: set when the task was asked to stop.
    :param poll_s: seconds between two looks at a job run and its report.
    :param end_s: the longest wait of ``end``.
    :param patience: for a service that does not answer.
    """

    name = "emr_serverless"

    client: EmrServerlessClient
    application: str
    request: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""
    report_of: Callable[[str, str], str] = lambda _key, _attempt: ""
    open_report: Callable[[str], ReportedLines] | None = None
    log_uri: str = ""
    open_log: OpenFile | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    discard: Callable[[str], object] | None = None
    killed: Flag = field(default_factory=Flag)
    poll_s: float = 5.0
    end_s: float = 8.0
    patience: Patience = field(default_factory=partial(Patience, 600, "EMR Serverless"))
    traits: Traits = field(init=False)
    _api: EmrServerlessApi = field(init=False)
    _runs: dict[str, FollowedRun] = field(default_factory=dict, init=False)
    _cancelled: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._api = EmrServerlessApi(self.client)
        self.traits = Traits(
            logs="after" if self.open_report else "none",
            start="findable",
            outlives_task=True,
            end_is_final=True,
            exit_code=True,
            proves_ends=False,
        )

    def submit(self, key: str, started: Callable[[Handle], None]) -> Handle:
        """Start the job run, and record it.

        :raises ConfigurationError: if EMR Serverless refuses it.
        :raises NotSubmittedError: if the application takes none now, or one of the task run is alive.
        :raises SubmitterUnreachableError: if there is no answer; ``find`` shows whether there is a run.
        """
        twin = self.find(key)
        if twin:
            raise twin_error(twin, "cancel the job run")
        handle = self._handle(self._start(run_token(key, self.report)), self.report)
        started(handle)
        if self.killed.is_set():
            self.end(handle)
        return handle

    def find(self, key: str) -> Handle | None:
        """Return the living job run of a task run.

        :raises SubmitterUnreachableError: if EMR Serverless does not answer.
        """
        prefix = token_prefix(key)
        for run in self._api.living(self.application):
            if run.name.startswith(prefix):
                return self._handle(run.id, self.report_of(key, run.name.removeprefix(prefix)))
        return None

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the job run is alive."""
        try:
            return self._look(handle, self._followed(handle))
        except SubmitterUnreachableError as error:
            return Unseen(error.message, is_away=not self.patience.is_over)

    def read(self, handle: Handle, wait_s: float) -> list[str] | None:
        """Return what the driver has reported since the last call; ``None`` after its end.

        After the end the last lines of its log follow, without the facts that its report has.

        :raises SubmitterUnreachableError: if EMR Serverless has not answered for long.
        """
        if self.killed.is_set():
            self.end(handle)
        followed = self._followed(handle)
        if followed.is_read:
            return None
        is_ending = followed.end or _id(handle) in self._cancelled
        period_s = min(_LOOK_S, self.poll_s) if is_ending else self.poll_s
        early_s = followed.looked_at + period_s - time.monotonic()
        if early_s > 0:
            time.sleep(early_s if followed.end else min(wait_s, early_s))
            return []
        followed.looked_at = time.monotonic()
        state: Running | Ended | Unseen = Running()
        with self.patience.waiting():
            state = self._look(handle, followed)
        lines = followed.read_report(_LOOK_S, is_last=not isinstance(state, Running))
        return lines if isinstance(state, Running) else self._last(handle, followed, lines)

    def end(self, handle: Handle) -> None:
        """Cancel the job run, and wait a little for its end.

        A signal handler must not wait for the code that it has interrupted: if the task was asked to
        stop, another thread makes the request.
        """
        job_run = _id(handle)
        known = self._runs.get(job_run)
        if not job_run or (known and known.end):
            return
        if self.killed.is_set():
            call_apart(lambda: self._cancel(handle), _KILL_S)
            return
        self._cancel(handle)
        deadline = time.monotonic() + self.end_s
        while isinstance(self.poll(handle), Running) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def _start(self, token: str) -> str:
        try:
            return self._api.start({**self.request, "name": token, "clientToken": token})
        except EmrRefusedError as refused:
            if refused.is_busy:
                raise NotSubmittedError(
                    f"the application {self.application} takes no job run now: {refused}",
                    remedy="no action if the task is retried; else see whether the application starts",
                ) from refused
            raise ConfigurationError(
                "job run",
                f"EMR Serverless refuses it: {refused}",
                remedy="correct the job's arguments or the connection",
            ) from refused

    def _cancel(self, handle: Handle) -> None:
        job_run, now = _id(handle), time.monotonic()
        if now - self._cancelled.get(job_run, float("-inf")) < _AGAIN_S:
            return
        with contextlib.suppress(SubmitterUnreachableError, EmrRefusedError):  # poll shows it
            self._api.cancel(handle.facts["application"], job_run)
            self._cancelled[job_run] = now
            self._remove_input(handle)

    def _remove_input(self, handle: Handle) -> None:
        if self.discard and not self.killed.is_set():
            self.discard(str(handle.facts.get("report") or ""))

    def _look(self, handle: Handle, followed: FollowedRun) -> Running | Ended | Unseen:
        if followed.end is None:
            run = self._job_run(handle)
            if run is None:
                return Unseen(f"EMR Serverless does not know {handle}")
            if not run.is_over:
                return Running(is_waiting=run.state in _WAITING)
            if run.state == "FAILED" and not self._reports_end(handle):
                self.traits = replace(self.traits, end_is_final=False)
            followed.end = run
        return Ended(followed.final_code(), followed.is_whole)

    def _job_run(self, handle: Handle) -> JobRun | None:
        if not _id(handle):
            return None
        try:
            found = self._api.job_run(handle.facts["application"], _id(handle))
        except SubmitterUnreachableError as error:
            self.patience.count(str(handle), error)
            raise
        self.patience.reset(str(handle))
        return found

    def _reports_end(self, handle: Handle) -> bool:
        fresh = FollowedRun.of(handle, self.open_report)
        fresh.read_report(_LOOK_S, is_last=True)
        return fresh.exit_code is not None

    def _last(self, handle: Handle, followed: FollowedRun, lines: list[str]) -> list[str] | None:
        """Return the lines after the end; the service may not have written its log yet."""
        log, run = self._log(handle, followed), followed.end
        if log is None and run and run.state != "CANCELLED" and followed.exit_code is None:
            followed.log_until = followed.log_until or time.monotonic() + _LOG_S
            if handle.facts.get("logs") and self.open_log and time.monotonic() < followed.log_until:
                return lines
        followed.is_read = True
        if not self.traits.end_is_final:  # its folder stays, with the report
            self._remove_input(handle)
        if followed.exit_code is None:
            followed.hear(log or [])
        else:
            log = [line for line in log or () if not read_fact(line)]
        reason = [f"EMR Serverless: {run.state}: {run.details}\n"] if run and run.details else []
        return [*lines, *(log or ()), *reason] or None

    def _log(self, handle: Handle, followed: FollowedRun) -> list[str] | None:
        facts = handle.facts
        if not (followed.end and self.open_log and facts.get("logs")):
            return None
        return driver_log(self.open_log, facts["logs"], facts["application"], facts["job_run"])

    def _handle(self, job_run: str, report: str) -> Handle:
        own = {"application": self.application, "job_run": job_run, "report": report}
        facts = {**self.origin, **own, "logs": self.log_uri}
        return Handle(self.name, f"EMR Serverless job run {job_run}", facts)

    def _followed(self, handle: Handle) -> FollowedRun:
        job_run = _id(handle)
        if job_run not in self._runs:
            self._runs[job_run] = FollowedRun.of(handle, self.open_report)
        return self._runs[job_run]


def _id(handle: Handle) -> str:
    """Return the id of a driver's job run; empty for a handle of another kind."""
    return str(handle.facts.get("job_run") or "")
