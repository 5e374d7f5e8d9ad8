"""The job runs of EMR Serverless, in calls of bounded time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_occ_provider.errors import SubmitterUnreachableError

# In the order in which a job run has them, so that one which is alive all the time is not missed.
# AWS does not say whether a run is pending before or after it is queued.
_ALIVE = ("SUBMITTED", "PENDING", "QUEUED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING")
_OVER = ("SUCCESS", "FAILED", "CANCELLED")
_PAGE = 50
_REFUSED = range(400, 500)
# Beginnings of codes that say nothing about the request itself.
_PASSING = ("Expired", "InternalServer", "RequestLimit", "ServiceUnavailable", "Throttl", "TooMany")
_UNKNOWN = "ResourceNotFoundException"
_BUSY = "ConflictException"


class EmrServerlessClient(Protocol):
    """What is used of boto3's client ``emr-serverless``."""

    def start_job_run(self, **request: Any) -> Any:
        """Start a job run."""

    def get_job_run(self, **request: Any) -> Any:
        """Describe a job run."""

    def list_job_runs(self, **request: Any) -> Any:
        """List a page of job runs."""

    def cancel_job_run(self, **request: Any) -> Any:
        """Cancel a job run."""


class EmrRefusedError(ValueError):
    """EMR Serverless refused a request; the message is its answer.

    :param is_busy: whether it refused because of the present state of the application.
    """

    def __init__(self, message: str, *, is_busy: bool = False) -> None:
        super().__init__(message)
        self.is_busy = is_busy


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job run as EMR Serverless describes it.

    :param details: why it has its state, for people.
    """

    id: str
    name: str
    state: str
    details: str

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> JobRun:
        """Read a description, or one of a list."""
        return cls(
            str(answer.get("jobRunId") or answer["id"]),
            str(answer.get("name") or ""),
            str(answer["state"]),
            str(answer.get("stateDetails") or ""),
        )

    @property
    def is_over(self) -> bool:
        """Whether EMR Serverless counts it as ended."""
        return self.state in _OVER


@dataclass(frozen=True, slots=True)
class EmrServerlessApi:
    """The job runs of one account and region.

    :param client: boto3's; it bounds each call in time, and repeats one whose answer was lost.
    """

    client: EmrServerlessClient

    def start(self, request: Mapping[str, Any]) -> str:
        """Start a job run, and return its id.

        The same client token starts no second one; a name of its own shows it.

        :raises EmrRefusedError: if EMR Serverless refuses it, and has not accepted it before.
        :raises SubmitterUnreachableError: if it does not answer; then there may be one.
        """
        application = str(request["applicationId"])
        try:
            answer = _ask(self.client.start_job_run, **request)
        except EmrRefusedError:
            for run in self.living(application):
                if run.name == request["name"]:  # the answer to an earlier request was lost
                    return run.id
            raise
        if answer is None:
            raise EmrRefusedError(f"there is no application {application}")
        return str(answer["jobRunId"])

    def job_run(self, application: str, job_run: str) -> JobRun | None:
        """Return a job run; ``None`` if EMR Serverless does not know it.

        :raises SubmitterUnreachableError: if EMR Serverless does not answer, or refuses to show it.
        """
        answer = _shown(self.client.get_job_run, applicationId=application, jobRunId=job_run)
        return None if answer is None else JobRun.of(answer["jobRun"])

    def living(self, application: str) -> Iterator[JobRun]:
        """Return the job runs that have not ended, perhaps one several times.

        :raises SubmitterUnreachableError: if EMR Serverless does not answer, or refuses to show them.
        """
        for state in _ALIVE:
            more: dict[str, Any] = {}
            while True:
                request = {"states": [state], "maxResults": _PAGE, **more}
                answer = _shown(self.client.list_job_runs, applicationId=application, **request) or {}
                yield from map(JobRun.of, answer.get("jobRuns", ()))
                if not answer.get("nextToken"):
                    break
                more = {"nextToken": answer["nextToken"]}

    def cancel(self, application: str, job_run: str) -> None:
        """Ask that a job run ends.

        :raises EmrRefusedError: if EMR Serverless refuses it.
        :raises SubmitterUnreachableError: if it does not answer.
        """
        _ask(self.client.cancel_job_run, applicationId=application, jobRunId=job_run)


def _shown(call: Callable[..., Any], **request: Any) -> Any:
    try:
        return _ask(call, **request)
    except EmrRefusedError as refused:
        raise SubmitterUnreachableError(
            f"EMR Serverless does not show its job runs: {refused}", remedy="check the AWS connection"
        ) from refused


def _ask(call: Callable[..., Any], **request: Any) -> Any:
    """Return an answer; ``None`` if it is about something that does not exist.

    :raises EmrRefusedError: if it is a refusal, or if boto3 did not send the request.
    :raises SubmitterUnreachableError: if there is no answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    try:
        return call(**request)
    except ParamValidationError as error:
        raise EmrRefusedError(str(error)) from error
    except ClientError as error:
        code = str(error.response["Error"].get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code == _UNKNOWN:
            return None
        if status in _REFUSED and not code.startswith(_PASSING):
            raise EmrRefusedError(str(error), is_busy=code == _BUSY) from error
        raise _unreachable(error) from error
    except BotoCoreError as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> SubmitterUnreachableError:
    return SubmitterUnreachableError(
        f"EMR Serverless did not answer: {error}",
        remedy="check that the worker can reach it with the connection's credentials",
    )
