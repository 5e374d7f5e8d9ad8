"""Ends in which the job has no part: by Airflow, by a time-out, by the worker."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_occ_provider.attempts import site
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.errors import ConfigurationError, NotSubmittedError, TaskEndedError
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.retry import DEFAULT_BUDGETS
from tests.contract.in_memory_submitter import InMemorySubmitter
from tests.support.patched import only_in
from tests.support.recorded_attempts import Store, attempt_of, journal
from tests.support.task_state import Task
from tests.unit.reports import fact

ENDED = TaskEndedError("the task was ended", outcome=Outcome.ENDED)


class Instance(Task):
    """A task instance whose state in Airflow's database a user may have changed."""

    state = "running"

    def get_task_states(self, **_):
        return {self.run_id: {self.task_id: self.state}} if self.state else {}


@pytest.fixture
def decide():
    """Evaluate the policy on an error of a write; return the decision and the counts."""

    def decide(error, state="running", kind=HudiWriteOperator, **given):
        counted = {}
        if kind is HudiWriteOperator:
            given |= {"application": "job.py", "table": "/lake/t"}
        ti = Instance(1, 14)
        ti.state = state
        store = SimpleNamespace(get=counted.get, set=counted.__setitem__)
        context = {"ti": ti, "task": kind(task_id="t", **given), "task_state_store": store}
        decision = HudiConflictRetryPolicy().evaluate(error, 1, 14, context)
        return decision, counted.get("hudi_retries", {}).get("counts", {})

    return decide


@pytest.mark.parametrize("state", ["success", "failed", "restarting", "skipped", ""])
def test_a_task_that_a_user_marked_or_cleared_counts_no_retry(decide, state, caplog):
    with caplog.at_level("INFO"):
        decision, counts = decide(ENDED, state)
    assert (decision.action, counts) == (RetryAction.DEFAULT, {})
    assert f"was marked or cleared, and is {state or 'removed'}" in caplog.text
    assert "Retry in" not in caplog.text


def test_the_task_of_a_worker_that_was_stopped_is_retried(decide):
    decision, counts = decide(ENDED, "running")
    assert (decision.action, counts) == (RetryAction.RETRY, {"killed": 1})


def test_a_time_out_of_the_task_is_named_and_has_a_budget(decide):
    limit = {"execution_timeout": timedelta(seconds=25)}
    decision, counts = decide(AirflowTaskTimeout("Timeout, PID: 1"), **limit)
    assert (decision.action, counts) == (RetryAction.RETRY, {"timeout": 1})
    budget = DEFAULT_BUDGETS["timeout"]
    expected = f"[timeout, retry 1 of {budget}] the task's execution_timeout of 0:00:25 is over"
    assert decision.reason == expected


FAULTS = [
    OSError(28, "No space left on device"),
    BlockingIOError(11, "Resource temporarily unavailable"),
    MemoryError(),
    ValueError("of this provider's own code"),
    subprocess.TimeoutExpired("spark-submit", 30),
]


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_a_fault_of_the_worker_is_not_the_jobs_own(decide, error):
    decision, counts = decide(error)
    assert (decision.action, counts) == (RetryAction.RETRY, {"airflow": 1})
    decision, _ = decide(error, kind=BaseOperator)  # its exceptions may be those of its job
    assert decision.action is not RetryAction.RETRY


OUT_OF_MEMORY = "OpenJDK warning: INFO: os::commit_memory failed; error='Not enough space' (errno=12)"


@pytest.mark.parametrize(
    ("lines", "code", "outcome"),
    [
        ([OUT_OF_MEMORY], 1, Outcome.NOT_STARTED),
        (["bin/spark-class: fork: retry: Resource temporarily unavailable"], 254, Outcome.NOT_STARTED),
        (["OSError: [Errno 12] Cannot allocate memory: 'spark-submit'"], 1, Outcome.NOT_STARTED),
        (["bin/spark-submit: Permission denied"], 126, Outcome.NOT_STARTED),
        ([], 1, Outcome.NOT_STARTED),
        ([], 137, Outcome.KILLED),
        ([fact("protected", options=1)], 1, Outcome.JOB_ERROR),
        ([fact("protected", options=1), "OSError: [Errno 28] No space left"], 1, Outcome.JOB_ERROR),
        ([fact("not_protected", reason="x")], 78, Outcome.MISCONFIGURATION),
    ],
)
def test_the_jobs_own_error_needs_a_driver_that_ran(folder, lines, code, outcome):
    def job(say, _):
        for line in lines:
            say(line)
        return code

    run = journal(Store())
    run.begin("d", "")
    attempt = attempt_of(folder, run, InMemorySubmitter(job))
    attempt.watch()
    settlement = attempt.settle(is_judged=True)
    assert settlement.outcome is outcome
    assert settlement.error().retry == (outcome in (Outcome.NOT_STARTED, Outcome.KILLED))


@pytest.fixture
def read(tmp_path):
    """Read the site of a Spark whose load-spark-env.sh is given."""

    def read(script):
        (tmp_path / "bin").mkdir()
        for name, text in {"spark-submit": "#!/bin/sh\n", "load-spark-env.sh": script}.items():
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        path = f"{tmp_path}/bin:/usr/bin:/bin"
        return site.read_site("spark-submit", {"PATH": path, "SPARK_HOME": str(tmp_path)})

    return read


def test_a_spark_env_that_takes_too_long_is_retried(read, monkeypatch):
    monkeypatch.setattr(site, "_PROBE_TIMEOUT_S", 0.2)
    with pytest.raises(NotSubmittedError, match=r"did not end in 0\.2 s"):
        read("exec sleep 60\n")


def test_a_spark_env_that_fails_is_retried(read):
    with pytest.raises(NotSubmittedError, match=r"failed \(exit code 7\)"):
        read("exit 7\n")


def test_a_fork_that_fails_is_retried(read, monkeypatch):
    def run(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    only_in(monkeypatch, site, "subprocess", run=run)
    with pytest.raises(NotSubmittedError, match="Resource temporarily unavailable"):
        read("")


def test_a_spark_that_is_not_there_is_a_setting(tmp_path):
    with pytest.raises(ConfigurationError, match="spark_binary"):
        site.read_site("spark-submit", {"PATH": str(tmp_path)})
