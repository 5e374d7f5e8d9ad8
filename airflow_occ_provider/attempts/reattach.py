"""Finds the attempt of a task run whose driver outlives the run's processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.submitter import Handle, Submitter, Unseen
from airflow_occ_provider.storage.address import is_one_table


def begun_attempt(
    run: Journal, submitter: Callable[[Handle], Submitter], table: str, digest: str, log: Any
) -> AttemptRecord | None:
    """Return the attempt whose driver does this try's work, running or ended.

    The driver of a task that the user cleared is not continued.

    :param submitter: returns what follows a driver.
    :param table: base path of the table that the task writes.
    :param digest: of the work of this try.
    """
    record = run.record
    attempts = [
        attempt
        for attempt in record.unsettled
        if attempt.identity == record.identity and is_one_table(attempt.table, table)
    ]
    if record.since is None or any(attempt.max_tries != run.now.max_tries for attempt in attempts):
        return None  # the user cleared the task, which ends its driver
    if record.digest != digest and all(attempt.try_number != run.now.number for attempt in attempts):
        return None  # within a try only the rendering can differ, such as a time in the arguments
    for attempt in reversed(attempts):
        if (
            attempt.driver
            and not attempt.end
            and not attempt.outcome  # else it was followed to an end that proves nothing
            and _is_followed(submitter(attempt.driver), attempt.driver)
        ):
            log.info("Following %s, which try %s started.", attempt.driver, attempt.try_number)
            return attempt
    return None


def _is_followed(follower: Submitter, driver: Handle) -> bool:
    state = follower.poll(driver)
    return follower.outlives_task and (not isinstance(state, Unseen) or state.is_away)
