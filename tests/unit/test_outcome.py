from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import parse_fact
from airflow_occ_provider.attempts.outcome import MEANINGS, Outcome, is_sentence
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.errors import CommitStateUnknownError
from tests.unit.recorded_logs import (
    CONFLICT,
    FROM_LOG_ALONE,
    JVM_CONFLICT,
    LOGS,
    each_recorded_log,
    recorded,
    traceback,
)
from tests.unit.reports import cause, fact, reported

T = "20261121092507982"


def driver_log(entries):
    log = DriverLog()
    for entry in entries:
        log.take(entry)
    return log


def read(entries, exit_code=None):
    return driver_log(entries).read(exit_code)


@each_recorded_log
def test_what_the_runner_reports_of_a_recorded_driver_has_its_outcome(path):
    name, exit_code, lines = recorded(path)
    if exit_code == 1:
        assert read(reported(lines), exit_code).outcome is FROM_LOG_ALONE[name]


def test_the_metadata_tables_instants_are_not_the_tables_own():
    lines = next(LOGS.glob("committed_info.*")).read_text().splitlines()
    reading = read(lines, 0)
    assert len(reading.own_instants) == 1
    assert any("__deltacommit__REQUESTED" in line for line in lines)


def test_without_hudis_conflict_check_the_log_says_so():
    assert read(next(LOGS.glob("unchecked*")).read_text().splitlines(), 0).conflict_checked is False
    assert read(next(LOGS.glob("committed_warn*")).read_text().splitlines(), 0).conflict_checked is True


@each_recorded_log
def test_whether_hudis_heartbeat_timer_died(path):
    log = driver_log(path.read_text().splitlines())
    died = log.instants.dead_timers & {*log.own_instants}
    assert len(died) == (recorded(path)[0] == "heartbeat_expired")


@each_recorded_log
def test_whether_a_write_came_to_its_commit(path):
    name = recorded(path)[0]
    came = name.startswith(("committed", "commit_conflict", "unchecked")) or name in (
        "stranger_conflict_caught",
        "rolled_back_inflight",
        "rolled_back_and_in_conflict",
    )
    log = driver_log(path.read_text().splitlines())
    assert len(log.instants.committing & {*log.own_instants}) == came


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"ActiveTimelineV2: Creating a new instant [==>{T}__commit__REQUESTED]", 1),
        (f"26/11/21 10:00:17 INFO X: Creating a new instant [==>{T}__commit__REQUESTED]", 1),
        (f"50 % done 26/11/21 10:00:17 INFO X: Creating a new instant [==>{T}__commit__REQUESTED]", 1),
        (f"Creating a new instant [==>{T}__commit__REQUESTED]", 0),
        (f"saw 'Creating a new instant [==>{T}__commit__REQUESTED]' again", 0),
    ],
)
def test_a_sentence_that_a_job_prints_is_no_instant_of_its_own(line, told):
    log = DriverLog()
    log.take(line)
    assert len(log.own_instants) == told


@pytest.mark.parametrize("before", ["", "the neighbour's log says: "])
def test_a_line_about_a_dead_heartbeat_is_no_dead_timer(before):
    log = DriverLog()
    log.take(
        f'{before}Exception in thread "Timer-0" org.apache.hudi.exception.HoodieHeartbeatException: '
        f"Unable to generate heartbeat for instant {T}"
    )
    assert T not in log.instants.dead_timers
    log.take("\tat org.apache.hudi.client.heartbeat.HoodieHeartbeatClient.updateHeartbeat(H.java:220)")
    assert (T in log.instants.dead_timers) == (not before)


def hudi(message, logger="ActiveTimelineV2"):
    return fact("hudi", logger=logger, message=message)


PROTECTED = fact("protected", options=20, followed=True)
REQUESTED = f"Creating a new instant [==>{T}__commit__REQUESTED]"
COMPLETED = f"Created new file for toInstant ?file:/lake/t/.hoodie/timeline/{T}_{T}.commit"
OPERATIONS = f"first operation = O(instantTime={T}), second operation = O(instantTime={T[::-1]})"
CHECKED = hudi("Successfully resolved conflicts, if any", "TransactionUtils")


def test_an_attempt_of_ours_is_followed_by_what_hudi_reports_not_by_what_is_printed():
    log = DriverLog()
    printed = f"26/11/21 10:00:17 INFO ActiveTimelineV2: {REQUESTED}"
    for line in (PROTECTED, printed):
        log.take(line)
    assert log.own_instants == ()
    followed = [hudi(REQUESTED), printed, CHECKED, hudi(COMPLETED), printed.replace(T, T[::-1])]
    for line in followed:
        log.take(line)
    assert log.own_instants == (T,)
    reading = read([PROTECTED, *followed], 0)
    assert (reading.instant, reading.conflict_checked) == (T, True)
    assert log.instants.completed == f"INFO ActiveTimelineV2: {COMPLETED}"


def test_what_the_runner_cannot_follow_is_read_as_it_is_printed():
    printed = [f"26/11/21 10:00:17 INFO ActiveTimelineV2: {text}" for text in (REQUESTED, COMPLETED)]
    lines = [fact("protected", followed=False), *printed]
    assert read(lines, 0).own_instants == (T,)


def test_a_heartbeat_that_dies_is_read_as_it_is_printed_and_a_rollback_as_it_is_reported():
    log = DriverLog()
    died = 'Exception in thread "Timer-1" org.apache.hudi.exception.HoodieHeartbeatException: '
    for line in (
        PROTECTED,
        f"{died}Unable to generate heartbeat for instant {T}",
        "\tat org.apache.hudi.client.heartbeat.HoodieHeartbeatClient.update(X.java:1)",
        "x Requesting Rollback with instant time [==>20261121092507999__rollback__REQUESTED]",
        hudi("Requesting Rollback with instant time [==>20261121092507888__rollback__REQUESTED]"),
    ):
        log.take(line)
    assert T in log.instants.dead_timers
    assert log.instants.requested == {"20261121092507888"}


def test_an_attempt_of_ours_died_of_what_the_runner_reports():
    chain = [
        cause("py4j.protocol.Py4JJavaError", "An error occurred while calling o1.save.\n", jvm=False),
        cause(CONFLICT, "x", frames=["at a.b(C.java:1)"]),
        cause("java.util.ConcurrentModificationException", "Cannot resolve conflicts"),
    ]
    caught = traceback(JVM_CONFLICT)
    assert read([PROTECTED, *caught], 3).died is False
    died = [PROTECTED, *caught, fact("fatal", causes=chain), fact("end", exit_code=1)]
    reading = read([*died, "Traceback (most recent call last):", "ValueError: not this"])
    assert (reading.outcome, reading.died) == (Outcome.COMMIT_CONFLICT, True)
    assert reading.lines[1:3] == (
        f"{CONFLICT}: x",
        "java.util.ConcurrentModificationException: Cannot resolve conflicts",
    )
    mine = [fact("fatal", causes=[cause("ValueError", f"giving up after {CONFLICT}", jvm=False)])]
    assert read([PROTECTED, *mine], 1).outcome is Outcome.JOB_ERROR
    refused = hudi(f"Found conflicting writes between {OPERATIONS}", "SimpleStrategy")
    lost = [PROTECTED, hudi(REQUESTED), refused, *mine]
    assert read(lost, 1).outcome is Outcome.COMMIT_CONFLICT
    assert read([PROTECTED, fact("end", exit_code=3)]).lines == ("exit code 3",)


def test_the_cause_on_an_executor_is_found_in_sparks_message():
    early = "org.apache.hudi.exception.HoodieEarlyConflictDetectionException"
    lost = (
        "Task 0 failed 1 times, most recent failure: Lost task 0.0 (TID 1) (localhost executor driver)"
    )
    at = "\tat a.b(C.java:1)"
    for inner in (
        f"{early}: x\n{at}",
        f"java.io.IOException: y\n{at}\nCaused by: {early}: x\n{at}\n\nDriver stacktrace:",
    ):
        chain = [cause("org.apache.spark.SparkException", f"Job aborted: {lost}: {inner}")]
        lines = [PROTECTED, fact("fatal", causes=chain)]
        assert read(lines, 1).outcome is Outcome.EARLY_CONFLICT


def test_a_driver_that_was_not_protected_says_why():
    reading = read([fact("not_protected", reason="conf has a=b: remove it")], 78)
    assert reading.outcome is Outcome.MISCONFIGURATION
    assert reading.lines == ("not protected: conf has a=b: remove it",)


def test_the_error_of_a_long_refusal_has_its_last_word_too():
    reason = f"the job's SQL {'t' * 80} reads what it writes, {'so ' * 30}: set isolation='serializable'"
    reading = read([fact("not_protected", reason=reason)], 78)
    assert reading.remedy.endswith(f"{reason}.")


@pytest.mark.parametrize("text", ["{", '{"fact": 3}', '{"fact": "protected"', "{}", '{"fact":"x"} y'])
def test_a_line_that_is_no_fact_is_none(text):
    assert parse_fact(text) is None


def test_a_layout_of_ones_own_does_not_hide_hudis_check():
    log = DriverLog()
    log.take('{"msg":"Creating a new instant [==>20261121092507982__commit__REQUESTED]","logger":"T"}')
    log.take('{"msg":"Successfully resolved conflicts, if any","logger":"T","application":"a"}')
    assert log.read(0).conflict_checked is True


def test_every_outcome_has_an_entry_with_a_remedy():
    assert list(MEANINGS) == list(Outcome)
    assert all(meaning.remedy for meaning in MEANINGS.values())


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if MEANINGS[outcome].error])
def test_every_failure_has_an_error_of_its_own_and_a_sentence(outcome):
    error = Settlement(outcome, instant=T, exit_code=1).error()
    assert (type(error), error.outcome) == (MEANINGS[outcome].error, outcome)
    assert error.remedy == MEANINGS[outcome].remedy
    assert error.message.startswith(f"{MEANINGS[outcome].title}: ")
    assert MEANINGS[outcome].title
    assert is_sentence(f"{error.message} 1.0 s wasted.")


def test_a_failure_names_a_rival_only_if_one_caused_it():
    with_rival = [
        outcome for outcome in Outcome if Settlement(outcome, T, "20261121092507999").described().rival
    ]
    assert with_rival == [Outcome.COMMIT_CONFLICT, Outcome.YIELDED, Outcome.CLUSTERING_CONFLICT]


def test_no_other_outcome_fails_an_attempt_but_an_unknown_one():
    well = [outcome for outcome in Outcome if not MEANINGS[outcome].error]
    assert well == [Outcome.COMMITTED, Outcome.NOTHING_WRITTEN, Outcome.UNKNOWN]
    assert [Settlement(outcome).error() for outcome in well[:-1]] == [None, None]
    assert isinstance(Settlement(Outcome.UNKNOWN).error(), CommitStateUnknownError)
    assert [MEANINGS[outcome].title for outcome in well] == ["", "", ""]


def test_memory_does_not_grow_with_the_log():
    log = DriverLog()
    for number in range(20_000):
        log.take(f"26/11/21 10:00:17 INFO X: line {number}")
        log.take(f"plain output {number} [x]")
    assert len(log.instants._actions) == 0
    assert log.own_instants == ()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x INFO YarnClientImpl: Submitted application application_1795_0001", "application_1795_0001"),
        (
            "x INFO StandaloneSchedulerBackend: Connected to Spark cluster with app ID app-2026-0001",
            "app-2026-0001",
        ),
        ("x INFO SparkContext: Submitted application: run_job.py", ""),
    ],
)
def test_the_cluster_managers_name_of_the_job(line, told):
    log = DriverLog()
    log.take(line)
    log.take("x INFO Client: Application report for application_1795_0001 (state: RUNNING)")
    assert log.application_id == told


def test_what_fails_before_the_runner_starts_is_named():
    log = DriverLog()
    for line in (
        "26/11/22 10:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library",
        'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.apache#x]',
        "\tat org.apache.spark.deploy.SparkSubmitUtils$.resolveMavenCoordinates(SparkSubmit.scala:1608)",
    ):
        log.take(line)
    reading = log.read(1)
    assert reading.outcome is Outcome.JOB_ERROR
    assert reading.lines == (
        'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.apache#x]',
    )


def test_a_jobs_own_output_is_not_taken_for_a_failure_before_the_runner():
    log = DriverLog()
    log.take(fact("protected", options=20, followed=True))
    log.take("ValueError: caught, and the job goes on")
    assert log.read(3).lines == ("exit code 3",)
