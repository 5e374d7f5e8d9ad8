"""``TaskRun``: what a try needs of the scheduler that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.locks import LockConnection
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


def _unmeasured(*_: object) -> None:
    """Measure nothing."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What takes the measurements of a try, all in seconds.

    :param attempt: called with the outcome of a driver, and for how long it ran.
    :param margin: called with the time until Hudi counts the driver's write as dead.
    :param queue_wait: called with the time from the request of a lease to its grant.
    :param lease_age: called with the time for which a lease was held that has been released.
    :param standby: called with the time for which a driver was there before its lease.
    """

    attempt: Callable[[Outcome, float], None] = _unmeasured
    margin: Callable[[float], None] = _unmeasured
    queue_wait: Callable[[float], None] = _unmeasured
    lease_age: Callable[[float], None] = _unmeasured
    standby: Callable[[float], None] = _unmeasured


class TaskRun(Protocol):
    """One try of a task run, as the scheduler knows it: Airflow, or a program."""

    @property
    def measures(self) -> Measures:
        """What takes the try's measurements."""

    @property
    def due_ms(self) -> int:
        """Epoch milliseconds before which no try has begun; 0 if that is unknown."""

    def lock(self) -> LockConnection:
        """Return the lock connection; asked once.

        :raises ConfigurationError: if there is none.
        """

    def open_table(self, table: str) -> HudiTable:
        """Return the reader of a table.

        :param table: base path of the task's table, or of another one that an earlier try wrote.
        """

    def journal(self) -> Journal:
        """Return the journal of the task run; asked once.

        :raises CommitStateUnknownError: if its record was written by another release.
        :raises StateStoreError: if its store does not answer.
        """

    def owner(self) -> Owner:
        """Return the owner of the task run's leases."""

    def sign(
        self, identity: str, snapshot: Snapshot, order_token: str, *, is_written: bool = True
    ) -> Signature:
        """Return the signature of the try's commits."""

    def absence_ms(self, try_number: int) -> int:
        """Return the longest time from the death of this process to the task's next try."""

    def folders(self) -> tuple[str, ...]:
        """Return this machine's folders of the work's files, which differ from try to try."""

    def grants(self, error: BaseException) -> bool | None:
        """Return whether another try follows after an error; ``None`` if it is unknown."""

    def hide(self, secrets: Iterable[str]) -> None:
        """Keep secrets out of all that people read."""

    def show(self, options: Mapping[str, str]) -> None:
        """Show people the options of a driver, without their secrets."""

    def publish(self, commit: Commit | None, result: Mapping[str, Any]) -> None:
        """Tell other tasks what the task run has written.

        :param commit: the run's commit; ``None`` if it wrote nothing.
        :param result: the facts of all its commits.
        """
