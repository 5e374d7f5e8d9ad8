"""The protocol by which an attempt runs its drivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.follower import Follower
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Submitter


class DriverRun(Protocol):
    """Runs one driver after another, and can end the running one."""

    @property
    def lives(self) -> bool:
        """Whether a process of the driver may be alive."""

    echo: Callable[[str], object]
    """Takes each line of a driver's log."""

    def submitter(self, submission: Submission) -> Submitter:
        """Return the submitter that runs a submission.

        :raises DriverKilledError: if the task was asked to stop before.
        """

    def follow(self, driver: Driver) -> None:
        """Take over a driver that is about to start: it ends with the task."""

    def submit(self, submission: Submission, follower: Follower) -> int:
        """Run a driver to its end and return its exit code.

        :raises DriverKilledError: if the task was asked to stop before.
        :raises FenceError: if a process of the driver does not end.
        """

    def end(self) -> None:
        """End the driver."""
