"""Jobs that commit once or several times: what an attempt comes to, and what the next try does.

The operator is the real one, from try to try, with a script in place of ``spark-submit``.
"""

from __future__ import annotations

import json

import pytest
from airflow.sdk import Asset

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.errors import (
    ConfigurationError,
    DriverKilledError,
    FailedAfterCommitError,
    JobError,
    MisconfigurationError,
    WriteConflictError,
)
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.retry import ConflictRetry
from tests.support.hand_made_tables import T0, T1, T2, add
from tests.unit.reports import fact

PROTECTED = fact("protected", followed=True, reports_end=True)
T3 = "20261121092700000"
END, FAILED = ("end", 0), (("raise", "no"), ("end", 1), ("exit", 1))
# What may happen to a job after its first commit.
FAILURES = {
    "an error of its own": FAILED,
    "a conflict of its next write": (("begin", T2), ("lose", T2, T0), ("end", 1), ("exit", 1)),
    "a write that was rolled back": (("begin", T2), ("gone", T2), *FAILED),
    "killed": (("killed",),),
    "killed in its next write": (("begin", T2), ("killed",)),
    "a wrapper that hides its exit code": (("raise", "no"), ("end", 1)),
    "a wrapper that hides that it was killed": (),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_job_of_one_commit_that_fails_after_it_is_red_in_every_try(scripted, failure):
    scripted.plan(("write", T1), *failure)
    scripted.plan(("write", T2), END)
    for number in (1, 2):
        with pytest.raises(FailedAfterCommitError, match=f"commit {T1}") as told:
            scripted.run(number)
        assert (told.value.retry, told.value.committed) == (False, True)
        assert "commits='many'" in told.value.remedy
    assert scripted.left == 1, "the job ran again"


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_job_of_many_commits_runs_again_until_it_has_ended_well(scripted, failure):
    scripted.plan(("write", T1), *failure)
    scripted.plan(("write", T3), END)
    with pytest.raises((JobError, DriverKilledError, WriteConflictError)) as told:
        scripted.run(1, commits="many")
    assert told.value.committed is True
    result = scripted.run(2, commits="many")
    assert (scripted.left, result["instant"]) == (0, T3)
    assert result["instants"] == [T1, T3]
    assert (result["records"], result["partitions"]) == (2, ["p=1"])


def test_a_conflict_of_any_write_of_many_uses_the_budget_for_conflicts(scripted):
    scripted.plan(("write", T1), ("begin", T2), ("lose", T2, T0), ("end", 1), ("exit", 1))
    with pytest.raises(WriteConflictError) as told:
        scripted.run(commits="many")
    assert (told.value.outcome, told.value.retry) == ("commit_conflict", True)
    assert ConflictRetry().judge(told.value, {}, 0, 0.0).cause == "conflict"
    assert f"instant {T2}" in told.value.message


@pytest.mark.parametrize(
    "line",
    [
        f"File already exists: file:/lake/t/.hoodie/timeline/{T2}.clean.inflight",
        f"Failed to create file s3a://lake/t/.hoodie/{T2}.clean.requested",
        f"File file:/lake/t/.hoodie/.heartbeat/{T2} does not exist",
    ],
)
def test_a_clean_that_failed_after_the_commit_is_told_from_the_job(scripted, line):
    scripted.plan(("write", T1), ("raise", line), ("end", 1), ("exit", 1))
    with pytest.raises(FailedAfterCommitError, match=f"commit {T1}") as told:
        scripted.run(1)
    assert "only Hudi's clean after the commit failed" in told.value.remedy
    assert "hoodie.clean.automatic=false" in told.value.remedy
    assert "if nothing is missing, mark the task as success" in told.value.remedy


@pytest.mark.parametrize(
    "line",
    [
        "Failed to write s3a://lake/report.clean",
        "File already exists: s3a://raw/trips.clean/2026-11-21",
        "com.acme.clean.Job failed",
        f"Failed to create file /lake/t/.hoodie/timeline/{T2}.commit.requested",
        f"File already exists: /lake/backups/{T2}.clean",
    ],
)
def test_an_error_of_the_job_is_not_taken_for_a_clean(scripted, line):
    scripted.plan(("write", T1), ("raise", line), ("end", 1), ("exit", 1))
    with pytest.raises(FailedAfterCommitError) as told:
        scripted.run(1)
    assert "clean after the commit" not in told.value.remedy


def test_the_heartbeat_of_a_second_write_is_not_taken_for_a_clean(scripted):
    line = f"File file:/lake/t/.hoodie/.heartbeat/{T2} does not exist"
    scripted.plan(("write", T1), ("begin", T2), ("raise", line), ("end", 1), ("exit", 1))
    with pytest.raises(FailedAfterCommitError) as told:
        scripted.run(1)
    assert "clean after the commit" not in told.value.remedy


def test_work_that_is_done_is_not_repeated(scripted):
    """The worker dies when the driver has ended well, before the run records its success."""
    for commits in ("one", "many"):
        scripted.store.clear()
        instant = T1 if commits == "one" else T2
        scripted.plan(("write", instant), END)
        scripted.plan(("write", T3), END)
        scripted.run(1, commits=commits)
        scripted.store["hudi_write"]["succeeded"] = False
        assert scripted.run(2, commits=commits)["instant"] == instant
        assert scripted.left == 1
        (scripted.home / "plans.json").unlink()


@pytest.mark.parametrize(("ended_well", "commits"), [(None, "one"), (True, "one"), (None, "many")])
def test_a_lost_worker_is_settled_by_what_its_driver_had_reported(scripted, ended_well, commits):
    scripted.plan(("write", T1), END)
    scripted.plan(("write", T2), END)
    scripted.run(1)
    record = scripted.store["hudi_write"]
    record["succeeded"] = False
    lost = {"end": "", "ended_ms": 0, "outcome": "", "settled": False, "ended_well": ended_well}
    record["attempts"][0] |= {**lost, "log_read": False}
    if ended_well:
        assert scripted.run(2, commits=commits)["instant"] == T1
    elif commits == "one":
        with pytest.raises(FailedAfterCommitError, match="was not seen"):
            scripted.run(2, commits=commits)
    else:
        assert scripted.run(2, commits=commits)["instants"] == [T1, T2]


def test_the_report_of_an_end_is_recorded_before_the_driver_has_ended(scripted):
    """The next try finds it, if the worker is lost while Spark shuts down."""
    seen = []
    set_record = scripted.store.set

    def note(key, value, **more):
        set_record(key, value, **more)
        if key == "hudi_write" and value["attempts"]:
            attempt = value["attempts"][-1]
            seen.append((attempt["ended_well"], attempt["end"]))

    scripted.store.set = note
    scripted.plan(("write", T1), END)
    scripted.run()
    assert (True, "") in seen
    assert seen[-1] == (True, "exit code 0")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_second_write_of_a_job_of_one_commit_is_told(scripted, tmp_path, elsewhere):
    other = str(tmp_path / "other")
    second = ("write", T2, other) if elsewhere else ("write", T2)
    scripted.plan(("write", T1), second, END)
    with pytest.raises(MisconfigurationError, match=f"commits='one'.*{T1}.*{T2}") as told:
        scripted.run()
    assert (told.value.retry, told.value.committed) == (False, True)
    assert "commits='many'" in told.value.remedy
    assert (other in told.value.message) == elsewhere


def test_several_tables_are_several_writes_of_one_job(scripted, tmp_path):
    other = str(tmp_path / "other")
    scripted.plan(("write", T1), ("begin", T2, other), *FAILED)
    scripted.plan(("write", T3), ("write", T2, other), END)
    with pytest.raises(JobError):
        scripted.run(1, commits="many")
    assert scripted.run(2, commits="many")["instants"] == [T1, T3]


def test_a_write_that_the_job_itself_repeats_is_one_commit(scripted):
    scripted.plan(("begin", T1), ("write", T2), END)
    assert scripted.run()["instants"] == [T2]


@pytest.mark.parametrize("commits", ["one", "many"])
def test_a_job_that_swallows_the_failure_of_its_last_write_did_not_end_well(scripted, commits):
    scripted.plan(("write", T1), ("begin", T2), END)
    with pytest.raises((MisconfigurationError, JobError), match=T2):
        scripted.run(commits=commits)


def test_a_clear_after_success_makes_all_commits_again(scripted):
    scripted.plan(("write", T1), ("write", T2), END)
    scripted.plan(("write", T3), END)
    assert scripted.run(1, commits="many")["instants"] == [T1, T2]
    assert scripted.run(2, 15, commits="many")["instants"] == [T3]


def test_the_asset_event_names_all_commits(scripted):
    outlet = Asset("trips")
    scripted.plan(("write", T1), ("write", T2), END)
    task, context = scripted.task(commits="many", outlets=[outlet])
    event = type("Event", (), {"extra": None})()
    context["outlet_events"] = {outlet: event}
    result = task.execute(context)
    assert event.extra["instants"] == result["instants"] == [T1, T2]


def test_another_number_of_commits_is_refused_when_the_dag_is_parsed():
    for wrong in ("two", 2, None, True):
        with pytest.raises(ConfigurationError, match=r"commits: .*use one of 'one', 'many'"):
            HudiWriteOperator(task_id="t", application="job.py", table="/lake/t", commits=wrong)


# What an exit code is worth.


@pytest.mark.parametrize(
    "steps",
    [
        (("raise", "no"), ("end", 1)),
        (("raise", "no"),),
        (("end", 3),),
    ],
    ids=["fatal and end", "fatal", "end"],
)
def test_a_failure_that_the_runner_reported_overrules_exit_code_0(scripted, steps):
    scripted.plan(*steps)
    with pytest.raises(JobError):
        scripted.run()
    (attempt,) = scripted.store["hudi_write"]["attempts"]
    assert (attempt["ended_well"], attempt["end"] != "exit code 0") == (False, True)


def test_a_driver_that_was_killed_behind_a_wrapper_is_no_success(scripted):
    scripted.plan()
    with pytest.raises(DriverKilledError):
        scripted.run()


@pytest.mark.parametrize("steps", [(), (("end", 0),)], ids=["silent", "not the runner's protection"])
def test_exit_code_0_without_a_protected_driver_is_a_misconfiguration(scripted, steps):
    scripted.unprotected(*steps)
    with pytest.raises(MisconfigurationError, match="does not show that it was protected"):
        scripted.run(isolation="serializable")


# A table that the job does not write.


@pytest.mark.parametrize("require_commit", [None, True, False])
def test_a_job_that_writes_another_table_only_is_an_error_unless_allowed(
    scripted, tmp_path, require_commit
):
    other = str(tmp_path / "other")
    scripted.plan(("write", T1, other), END)
    given = {} if require_commit is None else {"require_commit": require_commit}
    if require_commit is False:
        assert scripted.run(**given)["instant"] is None
        return
    with pytest.raises(MisconfigurationError, match=f"wrote {T1} in {other}, and nothing"):
        scripted.run(**given)


def test_a_job_that_writes_nothing_at_all_may_do_so(scripted, folder):
    add(folder, f"{T0}_{T0}.commit", identity="another")
    scripted.plan(END)
    result = scripted.run()
    assert (result["instant"], result["instants"]) == (None, [])
    json.dumps(result)


# The drivers of services and cleans, which make no commit of the task run.


@pytest.mark.parametrize(
    ("facts", "code", "outcome"),
    [
        ((PROTECTED, fact("end", exit_code=0)), 0, Outcome.UNKNOWN),
        ((PROTECTED, fact("end", exit_code=1)), 1, Outcome.JOB_ERROR),
        ((PROTECTED,), -9, Outcome.KILLED),
        ((fact("not_protected", reason="no lock"),), 78, Outcome.MISCONFIGURATION),
        ((), 78, Outcome.MISCONFIGURATION),
    ],
)
def test_exit_code_0_is_worth_what_the_runner_reported(facts, code, outcome):
    log = DriverLog()
    for line in facts:
        log.take(line)
    exit_code, reading = log.outcome_of(0)
    assert (exit_code, reading.outcome) == (code, outcome)


def test_a_log_that_was_not_read_to_its_end_proves_no_lack():
    assert DriverLog().outcome_of(0, is_read=False)[0] == 0
