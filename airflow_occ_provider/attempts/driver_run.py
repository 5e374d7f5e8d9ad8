"""The driver of an attempt, as the attempt sees it."""

from __future__ import annotations

from typing import Protocol

from airflow_occ_provider.attempts.follower import Follower
from airflow_occ_provider.attempts.submission import Submission


class DriverRun(Protocol):
    """Runs one driver after the other, and can end the one that runs."""

    @property
    def lives(self) -> bool:
        """Whether something of the driver may be alive."""

    @property
    def ended(self) -> bool:
        """Whether the driver was started, and nothing of it is alive."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of the ended driver, negative for a signal."""

    @property
    def log_read(self) -> bool:
        """Whether the driver's log was read to its end."""

    def forget(self) -> None:
        """Forget the driver before; it has ended."""

    def submit(self, submission: Submission, follower: Follower) -> int:
        """Run a driver to its end, and return its exit code.

        :raises DriverKilledError: if the task was asked to stop before.
        :raises FenceError: if something of the driver does not end.
        """

    def end(self) -> None:
        """End the driver."""
