"""The second driver of a task run, which no submitter starts."""

from __future__ import annotations

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import NotSubmittedError


def twin_error(first: Handle, end: str) -> NotSubmittedError:
    """Return the error for a driver that was not started beside a living one.

    :param first: the living driver of the task run.
    :param end: what ends it, as a command to the user.
    """
    return NotSubmittedError(
        f"{first} of this task run is alive, so no other was started beside it: another process of the "
        "task has started it meanwhile",
        remedy="no action if the task is retried: the next try finds its commit, or ends it; else "
        f"{end} and clear the task",
    )
