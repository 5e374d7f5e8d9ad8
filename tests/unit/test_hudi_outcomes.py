"""What Hudi's failures come to in a task, by the real operator and a script in place of Spark."""

from __future__ import annotations

import pytest

from airflow_occ_provider.errors import (
    HudiError,
    JobError,
    LockTimeoutError,
    MisconfigurationError,
    RolledBackError,
    WriteConflictError,
)
from airflow_occ_provider.retry import ConflictRetry
from tests.support.hand_made_tables import T0, T1

HUDI = "org.apache.hudi.exception"
TIMELINE = "/lake/t/.hoodie/timeline"
ENDS = (("end", 1), ("exit", 1))


@pytest.mark.parametrize(
    ("thrown", "error", "cause", "told"),
    [
        (
            f"{HUDI}.HoodieSchemaEvolutionConflictException: Detected incompatible",
            WriteConflictError,
            "conflict",
            "new schema",
        ),
        (
            f"{HUDI}.HoodieIOException: Failed to create file {TIMELINE}/{T0}.rollback.requested",
            WriteConflictError,
            "conflict",
            T0,
        ),
        (
            f"{HUDI}.HoodieException: Found pending restore in active timeline",
            HudiError,
            "hudi",
            "restored",
        ),
        (f"{HUDI}.HoodieMetadataException: of a later release", HudiError, "hudi", "of a later release"),
        (
            f"{HUDI}.HoodieLockException: Unable to acquire",
            LockTimeoutError,
            "lock",
            "holds Hudi's lock",
        ),
        (
            f"{HUDI}.HoodieLockException: No implementation of StorageLock supports this scheme: hdfs",
            MisconfigurationError,
            None,
            "scheme: hdfs",
        ),
        (f"{HUDI}.HoodieKeyException: recordKey value: null", JobError, None, "the job's own error"),
    ],
)
def test_hudis_own_failures_have_budgets_of_their_own(scripted, thrown, error, cause, told):
    scripted.plan(("begin", T1), ("throw", thrown), *ENDS)
    with pytest.raises(error) as raised:
        scripted.run()
    assert told in str(raised.value)
    verdict = ConflictRetry().judge(raised.value, {}, 0, 0.0)
    assert (verdict.retry, verdict.cause) == (cause is not None, cause)


@pytest.mark.parametrize("handled", [("raise", "could not be loaded"), ("end", 1)])
def test_a_conflict_that_the_job_handled_is_a_conflict_still(scripted, handled):
    scripted.plan(("begin", T1), ("conflict", T1, T0), handled, *ENDS)
    with pytest.raises(WriteConflictError, match=f"{T1} lost to {T0}"):
        scripted.run()


def test_a_conflict_with_a_rollback_names_no_other_writer(scripted):
    second = f"second operation = {{actionType=rollback, instantTime={T0}, actionState=INFLIGHT}}"
    first = f"first operation = {{actionType=commit, instantTime={T1}, actionState=INFLIGHT}}"
    thrown = f"{HUDI}.HoodieWriteConflictException: Cannot resolve conflicts between {first}, {second}"
    scripted.plan(("begin", T1), ("throw", thrown), *ENDS)
    with pytest.raises(RolledBackError, match=f"Rollback {T0}") as raised:
        scripted.run()
    assert "committed the same files first" not in str(raised.value)


def test_a_commit_is_not_called_unchecked_if_hudis_records_stopped_before_it(scripted):
    scripted.plan(("write_unheard", T1), ("end", 0))
    assert scripted.run()["instant"] == T1


def test_a_commit_is_not_called_unchecked_if_the_check_may_be_in_a_gap_of_the_records(scripted):
    scripted.plan(("write_heard_again", T1), ("end", 0))
    assert scripted.run()["instant"] == T1
