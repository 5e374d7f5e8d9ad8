from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_occ_provider import errors
from airflow_occ_provider.retry import DEFAULT_BUDGETS, ConflictRetry

RULES = ConflictRetry(base_delay=timedelta(seconds=10), max_delay=timedelta(seconds=60))
CONFLICT = errors.WriteConflictError("lost", outcome="commit_conflict")


def judge(error, spent=None, own_retries=0, jitter=1.0):
    return RULES.judge(error, spent or {}, own_retries, jitter)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (CONFLICT, "conflict"),
        (errors.LockTimeoutError("x", outcome="lock_timeout"), "lock"),
        (errors.LockUnreachableError("x"), "lock"),
        (errors.HeartbeatExpiredError("x", outcome="heartbeat_expired"), "heartbeat"),
        (errors.CommitRefusedError("x", outcome="commit_refused"), "lock"),
        (errors.DriverKilledError("x", outcome="killed"), "killed"),
        (errors.TableUnreadableError("x"), "storage"),
    ],
)
def test_each_cause_has_a_budget_of_its_own(error, cause):
    verdict = judge(error, {other: 99 for other in DEFAULT_BUDGETS if other != cause})
    assert (verdict.retry, verdict.cause) == (True, cause)
    assert judge(error, {cause: DEFAULT_BUDGETS[cause]}).retry is False


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigurationError("table", "x", remedy="y"),
        errors.CommitStateUnknownError("x"),
        errors.MisconfigurationError("x", outcome="misconfiguration"),
        errors.RolledBackError("x", outcome="rolled_back"),
    ],
)
def test_what_a_retry_cannot_heal_fails_at_once(error):
    assert judge(error, own_retries=9).retry is False


def made(kind):
    """An error of a class, however it wants to be made."""
    own = {errors.ConfigurationError: {"field": "x"}, errors.DataLossError: {"instant": "1"}}
    attempt = {"outcome": "x"} if issubclass(kind, errors.AttemptError) else {}
    return kind(message="x", remedy="y", **own.get(kind, attempt))


def every(kind):
    return [kind, *(one for sub in kind.__subclasses__() for one in every(sub))]


@pytest.mark.parametrize("kind", [one for one in every(errors.OccError) if one is not errors.JobError])
def test_every_error_is_retried_as_it_says_itself(kind):
    assert judge(made(kind), own_retries=9).retry is kind.retry


def test_a_failure_of_airflow_itself_has_a_budget():
    away = ValueError("the API server is away")
    verdict = RULES.judge(away, {}, 0, 1.0, infrastructure=True)
    assert (verdict.retry, verdict.cause) == (True, "airflow")
    spent = {"airflow": DEFAULT_BUDGETS["airflow"]}
    assert RULES.judge(away, spent, 9, 1.0, infrastructure=True).retry is False


def test_the_jobs_own_error_follows_the_users_own_retries():
    error = errors.JobError("x", outcome="job_error")
    assert judge(error, own_retries=0).retry is False
    assert judge(error, own_retries=2).retry is None
    assert judge(error, {"job": 2}, own_retries=2).retry is False
    assert judge(error, {"conflict": 2}, own_retries=2).retry is None


def test_other_errors_follow_the_users_own_retries_too():
    assert judge(ValueError("x"), own_retries=1).retry is None
    assert judge(ValueError("x"), own_retries=0).retry is False


def test_waits_double_up_to_a_bound_and_are_jittered():
    waits = [judge(CONFLICT, {"conflict": used}).delay.total_seconds() for used in range(5)]
    assert waits == [10, 20, 40, 60, 60]
    assert judge(CONFLICT, jitter=0.25).delay == timedelta(seconds=2.5)


def test_the_reason_says_what_and_how_often():
    assert judge(CONFLICT, {"conflict": 1}).reason == "[conflict, retry 2 of 5] lost"


def leaves(kind):
    below = kind.__subclasses__()
    return [leaf for sub in below for leaf in leaves(sub)] if below else [kind]


def test_every_error_is_drawn_in_the_tree():
    for leaf in leaves(errors.OccError):
        assert leaf.__name__ in errors.__doc__
