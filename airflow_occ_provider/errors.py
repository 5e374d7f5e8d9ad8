"""All errors of this provider, with what a caller must know about them.

::

    OccError
    ├── ConfigurationError        retry no,  committed no       refused before Spark started
    ├── LockUnreachableError      retry yes, committed no       the lock service did not answer
    ├── LeaseLostError            retry yes, committed unknown  the lease expired or was removed
    ├── LeaseRefusedError         retry no,  committed no       a second lease beside the first
    ├── AdmissionTimeoutError     retry no,  committed no       waited too long for a lease
    ├── StateStoreError           retry yes, committed unknown  Airflow did not store the task's record
    ├── DagRunNotStartedError     retry yes, committed no       Airflow did not start a run for a commit
    ├── SubmitterUnreachableError retry yes, committed unknown  what runs the drivers did not answer
    ├── NotSubmittedError         retry yes, committed no       a submission failed, nothing was started
    ├── FenceError                retry yes, committed unknown  an earlier driver could not be fenced
    ├── WorkerLostError           retry no,  committed no       the worker died with its driver too often
    ├── WriterAliveError          retry no,  committed no       a writer to be cleaned is still alive
    ├── RestorePendingError       retry yes, committed no       a restore of the table is not completed
    ├── CheckpointLostError       retry no,  committed no       the table has none of the commits read
    ├── TableUnreadableError      retry yes, committed unknown  the table's metadata cannot be read
    │   ├── NotHudiTableError         retry no    the path is not a Hudi table
    │   ├── UnknownTableVersionError  retry no    the table's version is not supported
    │   ├── MetadataCorruptError      retry yes   a metadata file is cut off or invalid
    │   ├── StorageStalledError       retry yes   the storage did not answer in time
    │   ├── StorageDeniedError        retry no    the storage refuses this worker's credentials
    │   └── HistoryUnreadableError    retry no    archived instants cannot be read here
    ├── CommitStateUnknownError   retry no,  committed unknown  the table does not show what happened
    └── AttemptError              one run of the Spark job failed
        ├── WriteConflictError    retry yes, committed no       a rival won the same file groups
        ├── LockTimeoutError      retry yes, committed no       Hudi did not get its commit lock
        ├── HeartbeatExpiredError retry yes, committed no       the writer's heartbeat expired
        ├── CommitRefusedError    retry yes, committed no       the driver's lease was over
        ├── DriverKilledError     retry yes                      the driver was killed from outside
        ├── TaskEndedError        retry yes                      Airflow ended the task with its driver
        ├── ExecutionTimeoutError retry yes                      the task's execution_timeout is over
        ├── DriverNotStartedError retry yes, committed no        the driver ended before the job ran
        ├── FailedAfterCommitError retry no, committed yes      the job failed after its one commit
        ├── RolledBackError       retry no,  committed no       another process rolled the writer back
        ├── DataLossError         retry no,  committed yes      files of the commit were deleted
        ├── DanglingFilesError    retry no,  committed yes      readers see files of no commit
        ├── MisconfigurationError retry no                      the write was not protected
        ├── HudiError             retry yes, committed no       Hudi failed, not by the job's own error
        └── JobError              retry is the user's           the job's own failure

``retry``: whether it is safe to run the job again, and may help. ``committed``: whether the attempt's
commit is in the table (``None``: unknown). ``cause``: what a retry of it is counted under, a key of
``retry.DEFAULT_BUDGETS``. ``remedy``: what to do.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

# The first with retry policies, the state stores of tasks and of assets, and on_kill of triggers.
_OLDEST_AIRFLOW = (3, 3)


def require_airflow_release() -> None:
    """Refuse an Airflow that is too old for this provider.

    :raises ImportError: then. Where no Airflow is installed, its own import says so.
    """
    release = _airflow_release()
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST_AIRFLOW:
        raise ImportError(
            f"airflow-occ-provider needs Airflow {'.'.join(map(str, _OLDEST_AIRFLOW))}, whose retry "
            "policies, state stores and on_kill of triggers it stands on; installed is Airflow "
            f"{release}. Remedy: upgrade Airflow, or write from plain Python, as the page 'Write "
            "without Airflow' of the documentation shows"
        )


def _airflow_release() -> str:
    for package in ("apache-airflow-core", "apache-airflow"):  # the second alone is Airflow 2
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


def install_extra(extra: str) -> str:
    """Return the remedy for a missing extra of this package.

    In words: Airflow's commands print errors through Rich, which drops a name in brackets as markup.
    """
    return f"install airflow-occ-provider with its extra {extra}"


class OccError(Exception):
    """The root of all errors of this provider.

    :param message: what happened, with names and values.
    :param remedy: what to do about it.
    """

    retry: ClassVar[bool] = False
    cause: ClassVar[str] = "airflow"
    committed: bool | None = False

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message.rstrip('.')}. Remedy: {remedy}" if remedy else message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Have another process get a copy with all its fields."""
        return _copy, (type(self), self.args), self.__dict__


def _copy(kind: type[OccError], args: tuple[Any, ...]) -> OccError:
    return kind.__new__(kind, *args)


class ConfigurationError(OccError):
    """An argument, a connection or a file contradicts safe concurrent writing.

    :param field: the argument, connection field or file line that is wrong.
    """

    def __init__(self, field: str, message: str, *, remedy: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}", remedy=remedy)


class LockUnreachableError(OccError):
    """The lock service did not answer within its time-out."""

    retry = True
    cause = "lock"


class LeaseLostError(OccError):
    """A lease or request is no longer in the queue, or another process took it over."""

    retry = True
    cause = "lock"
    committed = None


class LeaseRefusedError(OccError):
    """A request contradicts its owner's lease, or other requests in the queue."""


class AdmissionTimeoutError(OccError):
    """A lease was not granted, or rivals outside the queue did not end, in time.

    Nothing was run.
    """


class StateStoreError(OccError):
    """Airflow's task state store did not store the record that the next try needs."""

    retry = True
    cause = "storage"
    committed = None


class DagRunNotStartedError(OccError):
    """Airflow refused to start a DAG run for a commit, or did not answer."""

    retry = True


class SubmitterUnreachableError(OccError):
    """What runs the drivers, such as YARN, did not answer or refused a request."""

    retry = True
    committed = None


class NotSubmittedError(OccError):
    """A submission failed, and no driver was started."""

    retry = True
    committed = False


class FenceError(OccError):
    """A lazy clean failed, such as one that fences an earlier driver."""

    retry = True
    cause = "heartbeat"
    committed = None


class WorkerLostError(OccError):
    """The worker and its driver died too often; nothing was committed."""


class WriterAliveError(OccError):
    """A writer to be cleaned is still alive after the wait; nothing was cleaned."""


class RestorePendingError(OccError):
    """A restore of the table is pending; nothing was started.

    Hudi refuses every write until it is completed.
    """

    retry = True


class CheckpointLostError(OccError):
    """The table has none of the commits that a consumer has read.

    It was made anew, or restored to an earlier state.
    """


class TableUnreadableError(OccError):
    """The table's metadata folder exists but cannot be read or understood."""

    retry = True
    cause = "storage"
    committed = None

    def as_commit_state_unknown(self) -> TableUnreadableError:
        """Rewrap as "commit state unknown"; the next try checks the table first."""
        return type(self)(f"commit state unknown: {self.message}", remedy=self.remedy)


class NotHudiTableError(TableUnreadableError):
    """The path is not a Hudi table."""

    retry = False

    def as_commit_state_unknown(self) -> TableUnreadableError:
        """Rewrap as "commit state unknown": the table existed when the attempt ran."""
        return TableUnreadableError(f"commit state unknown: {self.message}", remedy=self.remedy)


class UnknownTableVersionError(TableUnreadableError):
    """The table has a version or timeline layout that this release does not support."""

    retry = False


class MetadataCorruptError(TableUnreadableError):
    """A metadata file is cut off, or its content does not match its name."""


class StorageStalledError(TableUnreadableError):
    """The storage did not answer within the time-out."""


class StorageDeniedError(TableUnreadableError):
    """The storage refuses this worker's credentials."""

    retry = False


class HistoryUnreadableError(TableUnreadableError):
    """The table's archived instants cannot be read here."""

    retry = False


class CommitStateUnknownError(OccError):
    """It is unknown whether the attempt committed; nothing is run again."""

    committed = None


class AttemptError(OccError):
    """One run of the Spark job failed.

    :param outcome: outcome of the attempt, a value of ``attempts.outcome.Outcome``.
    :param committed: whether its commit is in the table in spite of the failure.
    """

    def __init__(
        self, message: str, *, outcome: str, remedy: str = "", committed: bool | None = False
    ) -> None:
        self.outcome = outcome
        self.committed = committed
        super().__init__(message, remedy=remedy)


class WriteConflictError(AttemptError):
    """A rival writer or a table service won the same file groups."""

    retry = True
    cause = "conflict"


class LockTimeoutError(AttemptError):
    """Hudi did not get its commit lock, or could not reach the lock service."""

    retry = True
    cause = "lock"


class HeartbeatExpiredError(AttemptError):
    """The writer's heartbeat expired, so Hudi refused its commit or was certain to."""

    retry = True
    cause = "heartbeat"


class CommitRefusedError(AttemptError):
    """The driver's guard refused its commit: the lease was over, or nearly so."""

    retry = True
    cause = "lock"


class DriverKilledError(AttemptError):
    """The driver was killed from outside before it could log its outcome."""

    retry = True
    cause = "killed"


class TaskEndedError(AttemptError):
    """Airflow ended the task: it was marked or cleared, or its worker was stopped.

    Of a task that was marked or cleared, no retry is counted: Airflow has decided what follows.
    """

    retry = True
    cause = "killed"


class ExecutionTimeoutError(AttemptError):
    """The task's ``execution_timeout`` is over, and its driver was ended."""

    retry = True
    cause = "timeout"


class DriverNotStartedError(AttemptError):
    """The driver ended before the job ran, so the job has no part in it."""

    retry = True


class FailedAfterCommitError(AttemptError):
    """The job failed, or may have failed, after its one commit had landed.

    Whether it has done all of its work is for a person to see: nothing is run again.
    """


class RolledBackError(AttemptError):
    """Another process rolled the writer's instant back while the writer was alive."""


class DataLossError(AttemptError):
    """The commit is in the table, but files of it were deleted.

    The provider never rolls a completed commit back by itself.

    :param instant: requested time of the commit.
    :param statement: the SQL that rolls the commit back, for a person to run.
    """

    def __init__(self, message: str, *, instant: str, remedy: str, statement: str = "") -> None:
        self.instant = instant
        self.statement = statement
        super().__init__(message, outcome="rolled_back", remedy=remedy, committed=True)


class DanglingFilesError(AttemptError):
    """Readers see files of a fenced driver as part of a commit that is in the table."""


class MisconfigurationError(AttemptError):
    """The job's own settings removed the protection, or Hudi refused them."""


class HudiError(AttemptError):
    """Hudi failed by no known error of the job, and nothing was committed."""

    retry = True
    cause = "hudi"


class JobError(AttemptError):
    """The job failed by its own error; the user's ``retries`` apply."""
