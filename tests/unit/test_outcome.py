from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.failure import Failure, sentence
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import read_fact
from airflow_occ_provider.attempts.log.kept_facts import kept_facts, recall
from airflow_occ_provider.attempts.log.saved_log import SavedLog
from airflow_occ_provider.attempts.outcome import REMEDIES, Outcome
from airflow_occ_provider.embedded.bundle import HUDI_VERSION
from tests.golden.log_scenarios import log_scenarios
from tests.golden.record_logs import VERSIONS
from tests.unit.reports import cause, fact, reported

LOGS = Path(__file__).parents[1] / "golden" / "logs"
CONFLICT = "org.apache.hudi.exception.HoodieWriteConflictException"
ILLEGAL = "java.lang.IllegalArgumentException"
T = "20261121092507982"
CAUSE = "java.util.ConcurrentModificationException: Cannot resolve conflicts for overlapping writes"

# What the log alone can tell; whether nothing was written only the table can.
FROM_LOG_ALONE = {
    "committed_info": Outcome.COMMITTED,
    "committed_warn": Outcome.COMMITTED,
    "nothing_written": Outcome.UNKNOWN,
    "misconfiguration_single_writer": Outcome.MISCONFIGURATION,
    "unchecked_single_writer": Outcome.MISCONFIGURATION,
    "lock_timeout": Outcome.LOCK_TIMEOUT,
    "job_error": Outcome.JOB_ERROR,
    "commit_conflict_info": Outcome.COMMIT_CONFLICT,
    "commit_conflict_warn": Outcome.COMMIT_CONFLICT,
    "commit_conflict_caught": Outcome.UNKNOWN,
    "commit_conflict_caught_then_other_error": Outcome.COMMIT_CONFLICT,
    "early_conflict": Outcome.EARLY_CONFLICT,
    "killed": Outcome.KILLED,
    "heartbeat_expired": Outcome.HEARTBEAT_EXPIRED,
    "rolled_back_requested": Outcome.ROLLED_BACK,
    "rolled_back_inflight": Outcome.ROLLED_BACK,
    "rolled_back_and_in_conflict": Outcome.COMMIT_CONFLICT,
    "clustering_conflict": Outcome.CLUSTERING_CONFLICT,
    "own_file_gone": Outcome.ROLLED_BACK,
    "stranger_conflict_in_sql": Outcome.COMMIT_CONFLICT,
    "stranger_conflict_caught": Outcome.UNKNOWN,
    "stranger_metastore_unreachable": Outcome.LOCK_TIMEOUT,
    "stranger_unknown_lock_provider": Outcome.MISCONFIGURATION,
    "stranger_unknown_concurrency_mode": Outcome.MISCONFIGURATION,
    "stranger_short_heartbeat_interval": Outcome.MISCONFIGURATION,
}
RECORDED = sorted(LOGS.rglob("*.log"))
each_recorded_log = pytest.mark.parametrize("path", RECORDED, ids=lambda p: str(p.relative_to(LOGS)))


def read(lines, exit_code=None):
    log = SavedLog()
    for line in lines:
        log.feed(line)
    return log.read(exit_code)


def recorded(path):
    name, code = re.fullmatch(r"(\w+)\.exit(-?\d+)\.log", path.name).groups()
    return name, int(code), path.read_text().splitlines(keepends=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_scenario_is_recorded(version):
    default = version == HUDI_VERSION
    folder = LOGS if default else LOGS / version
    names = {recorded(path)[0] for path in folder.glob("*.log")}
    assert names == set(log_scenarios(everything=default))
    assert not default or names == set(FROM_LOG_ALONE)


@each_recorded_log
def test_recorded_logs(path):
    name, exit_code, lines = recorded(path)
    reading = read(lines, exit_code)
    assert reading.outcome is FROM_LOG_ALONE[name]
    assert reading.remedy
    handled = name.endswith("conflict_caught")
    assert bool(reading.lines) is (handled or reading.outcome is not Outcome.UNKNOWN)


@each_recorded_log
@pytest.mark.parametrize("form", ["json", "text", "stripped"])
def test_airflow_keeps_the_same_lines_in_forms_of_its_own(path, form):
    name, exit_code, lines = recorded(path)
    stripped = [line.strip() for line in lines]
    saved = {
        "json": [json.dumps({"timestamp": "x", "level": "info", "event": line}) for line in stripped],
        "text": [f"[2026-11-21 10:00:17] INFO - {line}" for line in stripped],
        "stripped": stripped,
    }[form]
    told = sentence(Failure(Outcome.JOB_ERROR, seconds=3.0))
    outcome = f"Outcome: {name} (instant -, exit code {exit_code})."
    after = [told, outcome, "Task failed with exception"]
    assert read([*saved, *after]).outcome is FROM_LOG_ALONE[name]


@each_recorded_log
def test_the_kept_facts_of_a_log_have_its_outcome(path):
    _, exit_code, lines = recorded(path)
    log, recalled = DriverLog(), DriverLog()
    for line in reported(lines) if read(lines, exit_code).died else lines:
        log.feed(line)
    facts = json.loads(json.dumps(kept_facts(log, str, is_whole=True)))
    recall(recalled, facts)
    whole, kept = log.read(exit_code), recalled.read(exit_code)
    assert len(json.dumps(facts)) < 16_000
    assert kept == replace(whole, lines=kept.lines)  # those name no exceptions of the job itself


_RECORD_OF_INFO = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d INFO ")


@each_recorded_log
def test_the_instant_is_also_found_in_a_log_without_info(path):
    _, exit_code, lines = recorded(path)
    instant = read(lines, exit_code).instant
    warned = [line for line in lines if not _RECORD_OF_INFO.match(line)]
    if instant and instant in "".join(warned):
        assert read(warned, exit_code).instant == instant


@pytest.mark.parametrize("level", ["info", "warn"])
def test_a_conflict_names_both_instants(level):
    path = next(LOGS.glob(f"commit_conflict_{level}.*"))
    reading = read(path.read_text().splitlines(), 1)
    told = re.search(r"first operation.*?instantTime=(\d+).*?instantTime=(\d+)", " ".join(reading.lines))
    assert (reading.instant, reading.rival) == told.groups()
    assert CONFLICT in " ".join(reading.lines)


def test_the_metadata_tables_instants_are_not_the_tables_own():
    lines = next(LOGS.glob("committed_info.*")).read_text().splitlines()
    reading = read(lines, 0)
    assert len(reading.own_instants) == 1
    assert any("__deltacommit__REQUESTED" in line for line in lines)


def test_without_hudis_conflict_check_the_log_says_so():
    assert read(next(LOGS.glob("unchecked*")).read_text().splitlines(), 0).conflict_checked is False
    assert read(next(LOGS.glob("committed_warn*")).read_text().splitlines(), 0).conflict_checked is True


def driver_log(lines):
    log = DriverLog()
    for line in lines:
        log.feed(line)
    return log


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


PRINTED = (
    "Task failed with exception of a neighbour; trying another way",
    "Outcome: committed (instant -, exit code 0).",
    "Conflict: a lost to b. 3.0 s of Spark time wasted.",
)


@pytest.mark.parametrize("printed", PRINTED)
def test_what_a_job_prints_does_not_end_its_drivers_log(printed):
    lines = (LOGS / "committed_info.exit0.log").read_text().splitlines()
    lines.insert(next(n for n, line in enumerate(lines) if "protected: " in line) + 1, printed)
    log = driver_log(lines)
    assert re.search(rf"Created new file .*/{log.own_instants[-1]}_\d+\.commit$", log.instants.completed)
    assert log.read(0).conflict_checked is True
    after = ["Outcome: committed (instant -, exit code 0).", "Task failed with exception"]
    assert read([*lines, *after]).outcome is Outcome.COMMITTED
    loggers = [airflow_json(line) for line in lines]
    assert read([*loggers, airflow_json(after[0], "airflow.task.operators.x")]).conflict_checked is True


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
    log.feed(line)
    assert len(log.own_instants) == told


@pytest.mark.parametrize("before", ["", "the neighbour's log says: "])
def test_a_line_about_a_dead_heartbeat_is_no_dead_timer(before):
    log = DriverLog()
    log.feed(
        f'{before}Exception in thread "Timer-0" org.apache.hudi.exception.HoodieHeartbeatException: '
        f"Unable to generate heartbeat for instant {T}"
    )
    assert T not in log.instants.dead_timers
    log.feed("\tat org.apache.hudi.client.heartbeat.HoodieHeartbeatClient.updateHeartbeat(H.java:220)")
    assert (T in log.instants.dead_timers) == (not before)


@pytest.mark.parametrize(
    ("file", "completed"),
    [
        (f"{T}.deltacommit.requested", False),
        (f"{T}.deltacommit.inflight", False),
        (f"{T}.inflight", False),
        (f"{T}_{T}.deltacommit", True),
    ],
)
def test_an_inflight_file_is_no_completed_one(file, completed):
    lines = [
        f"INFO ActiveTimelineV2: Creating a new instant [==>{T}__deltacommit__REQUESTED]",
        f"INFO ActiveTimelineV2: Created new file for toInstant: /lake/t/.hoodie/timeline/{file}",
    ]
    assert (read(lines, 0).outcome is Outcome.COMMITTED) == completed


def traceback(error, *, frame="<module>", more=()):
    return [
        "Traceback (most recent call last):",
        f'  File "job.py", line 7, in {frame}',
        "    main()",
        *error,
        *more,
    ]


JVM_CONFLICT = [
    "py4j.protocol.Py4JJavaError: An error occurred while calling o48.save.",
    f": {CONFLICT}: {CAUSE}",
    "\tat org.apache.hudi.client.X.y(X.java:205)",
    f"Caused by: {CAUSE}",
    "\t... 58 more",
    "",
]
STOPPING = "26/11/21 10:00:17 INFO SparkContext: Invoking stop() from shutdown hook"


@pytest.mark.parametrize(
    ("lines", "exit_code", "expected"),
    [
        (traceback(JVM_CONFLICT), 1, Outcome.COMMIT_CONFLICT),
        ([*traceback(JVM_CONFLICT), STOPPING], None, Outcome.COMMIT_CONFLICT),
        (traceback(JVM_CONFLICT), 0, Outcome.UNKNOWN),
        (traceback(["ValueError: saw a HoodieWriteConflictException"]), 1, Outcome.JOB_ERROR),
        (traceback([f"LoadError: failed: {CONFLICT}: {CAUSE}"]), 1, Outcome.COMMIT_CONFLICT),
        (traceback(["ValueError: two lines", f"Caused by: {CONFLICT}: x"]), 1, Outcome.COMMIT_CONFLICT),
        ([f"26/11/21 10:00:17 WARN X: {CONFLICT}: {CAUSE}"], 1, Outcome.COMMIT_CONFLICT),
        (
            ["26/11/21 10:00:17 ERROR X: failed", f"{CONFLICT}: {CAUSE}", "\tat a.b(C.java:1)"],
            1,
            Outcome.COMMIT_CONFLICT,
        ),
        ([*traceback(JVM_CONFLICT), "caught it, going on"], 1, Outcome.COMMIT_CONFLICT),
        ([*traceback(JVM_CONFLICT), *traceback(["KeyError: 'x'"])], 1, Outcome.COMMIT_CONFLICT),
        (traceback(JVM_CONFLICT, frame="write"), 1, Outcome.COMMIT_CONFLICT),
        (
            [
                *traceback(JVM_CONFLICT),
                "The above exception was the direct cause of the following exception:",
                "",
                *traceback(["RuntimeError: the write failed"]),
            ],
            1,
            Outcome.COMMIT_CONFLICT,
        ),
        (
            [f'Exception in thread "main" {CONFLICT}: {CAUSE}', "\tat a.b(C.java:1)"],
            1,
            Outcome.COMMIT_CONFLICT,
        ),
        ([f'Exception in thread "Timer-1" {CONFLICT}: x'], 1, Outcome.COMMIT_CONFLICT),
        ([], 137, Outcome.KILLED),
        ([], -9, Outcome.KILLED),
        (
            traceback(["py4j.protocol.Py4JNetworkError: Answer from Java side is empty"]),
            137,
            Outcome.KILLED,
        ),
        ([], 143, Outcome.KILLED),
        ([], 52, Outcome.JOB_ERROR),
        ([], 1, Outcome.JOB_ERROR),
        ([], 0, Outcome.UNKNOWN),
        ([], None, Outcome.UNKNOWN),
        (
            ["airflow_occ_provider: not protected: Hudi reads another configuration"],
            78,
            Outcome.MISCONFIGURATION,
        ),
    ],
)
def test_the_cause_of_a_jobs_failure(lines, exit_code, expected):
    assert read(lines, exit_code).outcome is expected


HUDI = "org.apache.hudi.exception"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (f"{HUDI}.HoodieEarlyConflictDetectionException: x", Outcome.EARLY_CONFLICT),
        (f"{HUDI}.HoodieClusteringUpdateException: Not allowed", Outcome.CLUSTERING_CONFLICT),
        (f"{HUDI}.HoodieLockException: Unable to acquire the lock", Outcome.LOCK_TIMEOUT),
        (f"{HUDI}.HoodieException: Unable to instantiate class a.b.XLockProvider", Outcome.LOCK_TIMEOUT),
        (
            f"{HUDI}.HoodieException: Heartbeat for instant 1 has expired, last",
            Outcome.HEARTBEAT_EXPIRED,
        ),
        (f"{ILLEGAL}: File file:/t/.hoodie/timeline/{T}.inflight does not exist!", Outcome.ROLLED_BACK),
        (f"{ILLEGAL}: Property hoodie.write.lock.zookeeper.url not found", Outcome.MISCONFIGURATION),
        (f"{HUDI}.HoodieIOException: disk full", Outcome.UNKNOWN),
    ],
)
def test_signatures_deep_in_the_chain(cause, expected):
    lines = traceback(
        [
            "py4j.protocol.Py4JJavaError: An error occurred while calling o48.save.",
            ": org.apache.hudi.exception.HoodieUpsertException: Failed to upsert for commit time 1",
            "\tat org.apache.hudi.X.y(X.java:1)",
            f"Caused by: {cause}",
            "\tat org.apache.hudi.X.z(X.java:2)",
        ]
    )
    assert read(lines, 1).outcome is expected


OWN_FILE = f"0/44e245d7-0_0-0-0_{T}.parquet"


@pytest.mark.parametrize(
    ("error", "own", "expected"),
    [
        (f"java.io.FileNotFoundException: File {OWN_FILE} does not exist", T, Outcome.ROLLED_BACK),
        (f"x.ExitCodeException: chmod: '{OWN_FILE}': No such file or directory", T, Outcome.ROLLED_BACK),
        (f"java.io.FileNotFoundException: File {OWN_FILE} does not exist", f"{T}1", Outcome.JOB_ERROR),
        ("java.io.FileNotFoundException: File in/data.csv does not exist", T, Outcome.JOB_ERROR),
    ],
)
def test_only_a_file_of_its_own_that_is_gone_was_rolled_back(error, own, expected):
    begun = f"ActiveTimelineV2: Creating a new instant [==>{own}__commit__REQUESTED]"
    died = traceback(["py4j.protocol.Py4JJavaError: x", f": {error}", "\tat a.b(C.java:1)"])
    assert read([begun, *died], 1).outcome is expected


def failed_sql(more=()):
    record = "26/11/21 10:00:17 ERROR SparkSQLDriver: Failed in [insert into t"
    statement = [" select 'java.lang.Exception: x' from s]"]
    trace = [f"{CONFLICT}: {CAUSE}", "\tat a.b(C.java:1)", f"Caused by: {CAUSE}", "\t... 58 more"]
    return [record, *statement, *trace, CAUSE, *trace, *more]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (failed_sql(), Outcome.COMMIT_CONFLICT),
        (failed_sql([STOPPING]), Outcome.COMMIT_CONFLICT),
        (failed_sql(["Time taken: 1.2 seconds"]), Outcome.COMMIT_CONFLICT),
        (failed_sql(traceback(["KeyError: 'x'"])), Outcome.COMMIT_CONFLICT),
        ([line for line in failed_sql() if "SparkSQLDriver" not in line], Outcome.COMMIT_CONFLICT),
    ],
)
def test_the_cause_of_a_sql_files_failure(lines, expected):
    assert read(lines, 1).outcome is expected


@pytest.mark.parametrize(
    "line",
    [
        f"WARN DirectMarkerBasedDetectionStrategy: Detected conflict marker files: 0/f for {T}",
        f"Conflict markers: [0/f-0_1-2-3_{T}.parquet.marker.MERGE, 1/g-0_1-2_{T}.parquet.marker.MERGE]",
    ],
)
def test_early_detection_names_the_instant_beside_its_markers(line):
    assert read([line], 1).instant == T


def test_a_log_record_in_the_middle_does_not_cut_a_trace():
    lines = traceback(JVM_CONFLICT)
    lines.insert(5, "26/11/21 10:00:17 WARN TaskSetManager: Lost task 0.0")
    assert read(lines, 1).outcome is Outcome.COMMIT_CONFLICT


@pytest.mark.parametrize(
    "after",
    [
        "INFO SparkContext: Invoking stop() from shutdown hook",
        "INFO:py4j.clientserver:Closing down clientserver connection",
        "[INFO ] 2026-11-21 10:00:17 [main] SparkContext - stopping",
        "2026-11-21 10:00:17,123 - py4j - WARNING - closing",
        '{"ts":"2026-11-21T10:00:17Z","level":"INFO","msg":"stopping"}',
        "Exception ignored in: <function JavaObject.__del__>",
        "sys:1: ResourceWarning: unclosed",
    ],
)
def test_what_is_logged_after_its_death_does_not_bring_a_job_back(after):
    assert read([*traceback(JVM_CONFLICT), after], 1).outcome is Outcome.COMMIT_CONFLICT


def test_a_records_own_stack_trace_is_not_the_programs_output():
    noise = [
        "26/11/21 10:00:17 WARN ShutdownHookManager: x",
        "java.io.IOException: no",
        "\tat a.b(C.java:1)",
    ]
    assert read([*traceback(JVM_CONFLICT), *noise], 1).outcome is Outcome.COMMIT_CONFLICT


def test_the_outermost_of_linked_traces_shows_whether_it_left_the_program():
    inner = traceback(JVM_CONFLICT, frame="write")
    link = "The above exception was the direct cause of the following exception:"
    assert (
        read([*inner, link, "", *traceback(["RuntimeError: no"])], 1).outcome is Outcome.COMMIT_CONFLICT
    )


def test_what_only_was_suppressed_does_not_decide():
    more = [
        "\tSuppressed: java.lang.Exception: x",
        "\tCaused by: org.apache.hudi.exception.HoodieLockException: y",
    ]
    assert read(traceback(JVM_CONFLICT, more=more), 1).outcome is Outcome.COMMIT_CONFLICT
    other = ["py4j.protocol.Py4JJavaError: x", ": java.io.IOException: disk", "\tat a.b(C.java:1)"]
    assert read(traceback(other, more=more), 1).outcome is Outcome.JOB_ERROR


def test_in_a_driver_of_ours_only_what_leaves_our_runner_is_a_death():
    protected = "airflow_occ_provider: protected: the driver reads /tmp/x/hudi-defaults.conf"
    caught = traceback(JVM_CONFLICT)
    death = [
        '  File "/opt/airflow_occ_provider/in_driver/run_job.py", line 96, in <module>',
        "    main()",
    ]
    uncaught = [caught[0], *death, *caught[1:]]
    assert read([protected, *caught], 3).died is False
    died = read([protected, *uncaught, "an atexit handler speaks"], 1)
    assert (died.outcome, died.died) == (Outcome.COMMIT_CONFLICT, True)


def hudi(message, logger="ActiveTimelineV2"):
    return fact("hudi", logger=logger, message=message)


PROTECTED = fact("protected", options=20, followed=True)
REQUESTED = f"Creating a new instant [==>{T}__commit__REQUESTED]"
COMPLETED = f"Created new file for toInstant ?file:/lake/t/.hoodie/timeline/{T}_{T}.commit"
CHECKED = hudi("Successfully resolved conflicts, if any", "TransactionUtils")


def test_an_attempt_of_ours_is_followed_by_what_hudi_reports_not_by_what_is_printed():
    log = DriverLog()
    printed = f"26/11/21 10:00:17 INFO ActiveTimelineV2: {REQUESTED}"
    for line in (PROTECTED, printed, f"and without a line's end {hudi('Loaded')}"):
        log.feed(line)
    assert log.own_instants == ()
    followed = [hudi(REQUESTED), printed, CHECKED, hudi(COMPLETED), printed.replace(T, T[::-1])]
    for line in followed:
        log.feed(line)
    assert log.own_instants == (T,)
    reading = read([PROTECTED, *followed], 0)
    assert (reading.outcome, reading.instant, reading.conflict_checked) == (Outcome.COMMITTED, T, True)
    assert reading.lines == (f"INFO ActiveTimelineV2: {COMPLETED}",)


def test_a_commit_of_ours_without_hudis_check_is_no_protected_one():
    assert read([PROTECTED, hudi(REQUESTED), hudi(COMPLETED)], 0).outcome is Outcome.MISCONFIGURATION


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
        log.feed(line)
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
    assert driver_log(died).read() == reading
    assert reading.lines[1:3] == (
        f"{CONFLICT}: x",
        "java.util.ConcurrentModificationException: Cannot resolve conflicts",
    )
    mine = [fact("fatal", causes=[cause("ValueError", f"giving up after {CONFLICT}", jvm=False)])]
    assert read([PROTECTED, *mine], 1).outcome is Outcome.JOB_ERROR
    assert read([PROTECTED, *caught, *mine], 1).outcome is Outcome.COMMIT_CONFLICT
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
    assert read_fact(f"airflow_occ_provider: {text}") is None


def airflow_json(event, logger="airflow.task.hooks.airflow.providers.x.SparkSubmitHook", **more):
    return json.dumps({"timestamp": "x", "level": "info", "event": event, "logger": logger, **more})


def test_other_loggers_of_airflow_do_not_speak_for_the_driver():
    lines = [airflow_json(line.strip()) for line in traceback(JVM_CONFLICT)]
    lines.insert(4, airflow_json("TaskError: something", "task"))
    lines.append(airflow_json("OpenLineage is not configured", "airflow.lineage"))
    assert read(lines).outcome is Outcome.COMMIT_CONFLICT


def test_the_exit_code_is_read_from_airflows_own_error():
    detail = [{"exc_type": "AirflowException", "exc_value": "Cannot execute: x. Error code is: -9."}]
    failed = airflow_json("Task failed with exception", "task", error_detail=detail)
    assert read([airflow_json("26/11/21 10:00:17 INFO X: y"), failed]).outcome is Outcome.KILLED


def test_a_layout_of_ones_own_does_not_hide_hudis_check():
    log = DriverLog()
    log.feed('{"msg":"Creating a new instant [==>20261121092507982__commit__REQUESTED]","logger":"T"}')
    log.feed('{"msg":"Successfully resolved conflicts, if any","logger":"T","application":"a"}')
    assert log.read(0).conflict_checked is True


def test_every_outcome_has_a_remedy():
    assert set(REMEDIES) == set(Outcome)


def test_memory_does_not_grow_with_the_log():
    log = DriverLog()
    for number in range(20_000):
        log.feed(f"26/11/21 10:00:17 INFO X: line {number}")
        log.feed(f"plain output {number} [x]")
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
    log.feed(line)
    log.feed("x INFO Client: Application report for application_1795_0001 (state: RUNNING)")
    assert log.application_id == told


@pytest.mark.parametrize(
    "cut", ["at org.apache.spark.sched", "\tat org.apache.spark.Task.run(Task.scala:1)"]
)
def test_a_record_that_the_programs_traceback_cuts_in_two_does_not_hide_it(cut):
    path = LOGS / "early_conflict.exit1.log"
    lines = path.read_text().splitlines()
    begin = max(n for n, line in enumerate(lines) if line.startswith("Traceback"))
    lines[begin] = cut + lines[begin]
    assert read(lines, 1).outcome is Outcome.EARLY_CONFLICT


def test_what_fails_before_the_runner_starts_is_named():
    log = DriverLog()
    for line in (
        "26/11/22 10:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library",
        'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.apache#x]',
        "\tat org.apache.spark.deploy.SparkSubmitUtils$.resolveMavenCoordinates(SparkSubmit.scala:1608)",
    ):
        log.feed(line)
    reading = log.read(1)
    assert reading.outcome is Outcome.JOB_ERROR
    assert reading.lines == (
        'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.apache#x]',
    )


def test_a_jobs_own_output_is_not_taken_for_a_failure_before_the_runner():
    log = DriverLog()
    log.feed(fact("protected", options=20, followed=True))
    log.feed("ValueError: caught, and the job goes on")
    assert log.read(3).lines == ("exit code 3",)
