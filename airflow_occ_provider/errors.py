"""Every error of this provider, with what a caller must know of it.

::

    OccError
    ├── ConfigurationError        retry no,  committed no       refused before Spark started
    ├── LockUnreachableError      retry yes, committed no       the lock service did not answer
    ├── LeaseLostError            retry yes, committed unknown  others took the lease's owner for dead
    ├── LeaseRefusedError         retry no,  committed no       a second lease beside the first
    ├── AdmissionTimeoutError     retry no,  committed no       waited for a lease for too long
    ├── StateStoreError           retry yes, committed unknown  Airflow did not take the task's record
    ├── FenceError                retry yes, committed unknown  an earlier driver could not be fenced
    ├── WorkerLostError           retry no,  committed no       the worker died with its driver too often
    ├── WriterAliveError          retry no,  committed no       a writer that should be cleaned lives
    ├── TableUnreadableError      retry yes, committed unknown  the table's metadata cannot be read
    │   ├── NotHudiTableError         retry no    the path holds no Hudi table
    │   ├── UnknownTableVersionError  retry no    the table is newer than what we can read
    │   ├── MetadataCorruptError      retry yes   a metadata file is cut off or not what it should be
    │   ├── StorageStalledError       retry yes   the storage did not answer in time
    │   ├── StorageDeniedError        retry no    the storage does not let this worker read the table
    │   └── HistoryUnreadableError    retry no    archived instants cannot be read here
    ├── CommitStateUnknownError   retry no,  committed unknown  the table cannot tell what happened
    └── AttemptError              one run of the Spark job failed
        ├── WriteConflictError    retry yes, committed no       a rival won the same file groups
        ├── LockTimeoutError      retry yes, committed no       Hudi did not get its commit lock
        ├── HeartbeatExpiredError retry yes, committed no       Hudi gave the writer up
        ├── DriverKilledError     retry yes                      the driver died without a word
        ├── RolledBackError       retry no,  committed no       somebody rolled the writer back
        ├── DataLossError         retry no,  committed yes      the commit landed, its files are gone
        ├── DanglingFilesError    retry no,  committed yes      readers see files that nobody committed
        ├── MisconfigurationError retry no                      the write was not protected
        └── JobError              retry is the user's           the job's own failure

``retry`` says whether running the job again is safe and may help, ``committed`` whether the
attempt's commit is in the table (``None``: it cannot be known), ``remedy`` what to do.
"""

from __future__ import annotations

from typing import ClassVar


class OccError(Exception):
    """Root of all errors of this provider.

    :param message: what happened, with the names and values that matter.
    :param remedy: what the reader can do about it.
    """

    retry: ClassVar[bool] = False
    committed: bool | None = False

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message.rstrip('.')}. Remedy: {remedy}" if remedy else message)


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


class LeaseLostError(OccError):
    """A request does not stand in line any more, or another process took it over."""

    retry = True
    committed = None


class LeaseRefusedError(OccError):
    """A lease cannot be asked for beside what the owner holds, or what stands in line."""


class AdmissionTimeoutError(OccError):
    """The lease was not granted, or rivals outside the queue did not end, in time; nothing was run."""


class StateStoreError(OccError):
    """Airflow's task state store did not take what the next try has to know."""

    retry = True
    committed = None


class FenceError(OccError):
    """A lazy clean failed, such as one that should roll an earlier driver's instant back."""

    retry = True
    committed = None


class WorkerLostError(OccError):
    """The worker died together with its driver once more than is retried; nothing was committed."""


class WriterAliveError(OccError):
    """A writer that should be cleaned still lives at the end of the wait; nothing was cleaned."""


class TableUnreadableError(OccError):
    """The table's metadata folder exists but cannot be read or understood."""

    retry = True
    committed = None

    def as_commit_state_unknown(self) -> TableUnreadableError:
        """Return it as what it means once an attempt has run; a later try asks the table first."""
        return type(self)(f"commit state unknown: {self.message}", remedy=self.remedy)


class NotHudiTableError(TableUnreadableError):
    """The path holds no Hudi table."""

    retry = False

    def as_commit_state_unknown(self) -> TableUnreadableError:
        """Return it as a storage that does not show the table for now: the attempt ran on it."""
        return TableUnreadableError(f"commit state unknown: {self.message}", remedy=self.remedy)


class UnknownTableVersionError(TableUnreadableError):
    """The table's version or timeline layout is none that this release can read."""

    retry = False


class MetadataCorruptError(TableUnreadableError):
    """A metadata file is cut off, or is not what its name says."""


class StorageStalledError(TableUnreadableError):
    """The storage did not answer within the time-out."""


class StorageDeniedError(TableUnreadableError):
    """The storage refuses this worker's credentials."""

    retry = False


class HistoryUnreadableError(TableUnreadableError):
    """The table's archived instants cannot be read here."""

    retry = False


class CommitStateUnknownError(OccError):
    """Whether the attempt's commit is in the table cannot be known; nothing is run again."""

    committed = None


class AttemptError(OccError):
    """One run of the Spark job failed.

    :param outcome: what the attempt came to, one of the values of ``jobs.outcome.Outcome``.
    :param committed: whether its commit is in the table nevertheless.
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


class LockTimeoutError(AttemptError):
    """Hudi did not get its commit lock, or could not reach the lock service."""

    retry = True


class HeartbeatExpiredError(AttemptError):
    """Hudi found the writer's own heartbeat expired and refused its commit, or was certain to."""

    retry = True


class DriverKilledError(AttemptError):
    """The driver was killed from outside before it could say what it had done."""

    retry = True


class RolledBackError(AttemptError):
    """Somebody rolled the writer's instant back while it was alive."""


class DataLossError(AttemptError):
    """The commit is in the table, but files of it were deleted; no rollback is made without you.

    :param instant: requested time of the commit.
    :param statement: the SQL that rolls the commit back.
    """

    def __init__(self, message: str, *, instant: str, remedy: str, statement: str = "") -> None:
        self.instant = instant
        self.statement = statement
        super().__init__(message, outcome="rolled_back", remedy=remedy, committed=True)


class DanglingFilesError(AttemptError):
    """The commit is in the table, and beside it files of a fenced driver that readers take for its."""


class MisconfigurationError(AttemptError):
    """The job's own settings took the protection away, or Hudi refused them."""


class JobError(AttemptError):
    """The job failed for a reason of its own; its retries are the user's to set."""
