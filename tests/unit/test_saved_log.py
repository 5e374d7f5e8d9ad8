"""What ``airflow hudi outcome`` reads in the saved logs of any driver."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import re
from itertools import count

import pytest
from airflow.cli.cli_parser import get_parser

from airflow_occ_provider.attempts.outcome import Failure, Outcome, sentence
from airflow_occ_provider.embedded.bundle import HUDI_VERSION
from airflow_occ_provider.reading.saved_log import read_saved_log as read
from tests.golden import HUDI_RELEASES
from tests.golden.log_scenarios import log_scenarios
from tests.unit.recorded_logs import (
    CAUSE,
    CONFLICT,
    FROM_LOG_ALONE,
    JVM_CONFLICT,
    LOGS,
    RECORDED,
    each_recorded_log,
    recorded,
    traceback,
)

HUDI = "org.apache.hudi.exception"
ILLEGAL = "java.lang.IllegalArgumentException"
T = "20261121092507982"


@pytest.mark.parametrize("version", HUDI_RELEASES)
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


@pytest.mark.parametrize("path", sorted((LOGS / "yarn").glob("*.txt")), ids=lambda path: path.stem)
def test_what_yarn_logs_has_printed_of_an_application_is_read(path, capsys):
    name, exit_code = re.fullmatch(r"(\w+)\.exit(-?\d+)", path.stem).groups()
    outcome(path, "--exit-code", exit_code)
    assert f"outcome    {FROM_LOG_ALONE[name]}" in capsys.readouterr().out


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


def outcome(*arguments):
    args = get_parser().parse_args(["hudi", "outcome", *map(str, arguments)])
    args.func(args)


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


FAILED = "Task failed with exception"
STOPPING = "26/11/21 10:00:17 INFO SparkContext: Invoking stop() from shutdown hook"


@pytest.mark.parametrize(
    ("lines", "exit_code", "expected"),
    [
        (traceback(JVM_CONFLICT), 1, Outcome.COMMIT_CONFLICT),
        ([*traceback(JVM_CONFLICT), STOPPING], None, Outcome.UNKNOWN),
        (traceback(JVM_CONFLICT), 0, Outcome.UNKNOWN),
        (traceback(["ValueError: saw a HoodieWriteConflictException"]), 1, Outcome.JOB_ERROR),
        (traceback([f"LoadError: failed: {CONFLICT}: {CAUSE}"]), 1, Outcome.JOB_ERROR),
        (traceback(["ValueError: two lines", f"Caused by: {CONFLICT}: x"]), 1, Outcome.COMMIT_CONFLICT),
        ([f"26/11/21 10:00:17 WARN X: {CONFLICT}: {CAUSE}"], 1, Outcome.COMMIT_CONFLICT),
        (
            [
                "26/11/21 10:00:17 ERROR X: failed",
                f"{CONFLICT}: {CAUSE}",
                "\tat a.b(C.java:1)",
                STOPPING,
            ],
            1,
            Outcome.COMMIT_CONFLICT,
        ),
        ([*traceback(JVM_CONFLICT), "caught it, going on"], 1, Outcome.COMMIT_CONFLICT),
        ([*traceback(JVM_CONFLICT), *traceback(["KeyError: 'x'"])], 1, Outcome.UNKNOWN),
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
            [f'Exception in thread "main" {CONFLICT}: {CAUSE}', "\tat a.b(C.java:1)", STOPPING],
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
        ([], 52, Outcome.UNKNOWN),
        ([], 0, Outcome.UNKNOWN),
        ([], None, Outcome.UNKNOWN),
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
        (failed_sql(traceback(["KeyError: 'x'"])), Outcome.UNKNOWN),
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
    assert read([*traceback(JVM_CONFLICT), *noise, STOPPING], 1).outcome is Outcome.COMMIT_CONFLICT


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


def airflow_json(event, logger="airflow.task.hooks.airflow.providers.x.SparkSubmitHook", **more):
    return json.dumps({"timestamp": "x", "level": "info", "event": event, "logger": logger, **more})


def test_other_loggers_of_airflow_do_not_speak_for_the_driver():
    lines = [airflow_json(line.strip()) for line in traceback(JVM_CONFLICT)]
    lines.insert(4, airflow_json("TaskError: something", "task"))
    lines.append(airflow_json("OpenLineage is not configured", "airflow.lineage"))
    assert read(lines, 1).outcome is Outcome.COMMIT_CONFLICT


def test_the_exit_code_is_read_from_airflows_own_error():
    detail = [{"exc_type": "AirflowException", "exc_value": "Cannot execute: x. Error code is: -9."}]
    failed = airflow_json("Task failed with exception", "task", error_detail=detail)
    assert read([airflow_json("26/11/21 10:00:17 INFO X: y"), failed]).outcome is Outcome.KILLED


@pytest.mark.parametrize(
    "cut", ["at org.apache.spark.sched", "\tat org.apache.spark.Task.run(Task.scala:1)"]
)
def test_a_record_that_the_programs_traceback_cuts_in_two_does_not_hide_it(cut):
    path = LOGS / "early_conflict.exit1.log"
    lines = path.read_text().splitlines()
    begin = max(n for n, line in enumerate(lines) if line.startswith("Traceback"))
    lines[begin] = cut + lines[begin]
    assert read(lines, 1).outcome is Outcome.EARLY_CONFLICT


# How each tool writes the n-th line of a log, which it got without its line break.
_NANOS = "2026-11-21T09:06:{:02}.{:09}Z".format


def _time(n, form="2026-11-21T09:{:02}:{:02}"):
    return form.format(n // 60 % 60, n % 60)


def _json(n, line, **more):
    return json.dumps({"timestamp": f"{_time(n)}.1Z", "event": line, "level": "info", **more})


def _airflow_json(logger):
    return lambda n, line: _json(n, line, logger=logger)


WRAPPINGS = {
    "kubectl --timestamps": lambda n, line: f"{_NANOS(n % 60, n * 7919)} {line}",
    "kubectl --prefix": lambda n, line: f"[pod/load-5f2b1c-driver/spark-kubernetes-driver] {line}",
    "kubectl --prefix --timestamps": lambda n, line: f"[pod/load/driver] {_NANOS(n % 60, n)} {line}",
    "docker logs -t": lambda n, line: f"{_NANOS(n % 60, n * 7919).rstrip('0Z')}1Z {line}",
    "containerd's file, long lines": lambda n, line: (
        f"{_NANOS(n % 60, n)} stderr {'FP'[n % 5 == 0]} {line}"
    ),
    "docker compose": lambda n, line: f"spark-1  | {line}",
    "docker compose -t": lambda n, line: f"spark-submit-1  | {_NANOS(n % 60, n)} {line}",
    "docker's file": lambda n, line: json.dumps(
        {"log": line + "\n", "stream": "stderr", "time": _time(n)}
    ),
    "containerd's file": lambda n, line: f"{_NANOS(n % 60, n)} std{('out', 'err')[n % 2]} F {line}",
    "stern": lambda n, line: f"load-5f2b1c-driver spark-kubernetes-driver {line}",
    "stern in colours": lambda n, line: f"\x1b[35mload-driver\x1b[0m \x1b[95mspark\x1b[0m {line}",
    "journald": lambda n, line: (
        f"Nov {n // 400 + 1:2} {_time(n)[11:]} worker-3 spark-submit[2231]: {line}"
    ),
    "journald -o short-iso": lambda n, line: f"{_time(n)}+0000 worker-3 load.sh[81]: {line}",
    "aws logs tail": lambda n, line: f"{_time(n)}.123000+00:00 driver/attempt_1/stderr {line}",
    "grep -n": lambda n, line: f"{n + 1}:{line}",
    "[base]": lambda n, line: f"[base] {line}",
    "Airflow 2": lambda n, line: f"[{_time(n)}.123+0000] {{spark_submit.py:571}} INFO - {line}",
    "Airflow 2 and a pod": lambda n, line: (
        f"[{_time(n)}.123+0000] {{pod_manager.py:466}} INFO - [base] {line}"
    ),
    "Airflow 2, before 2.6": lambda n, line: (
        f"[{_time(n).replace('T', ' ')},123] {{a.py:{n}}} INFO - {line}"
    ),
    "Airflow 3.1's page": lambda n, line: f"[{_time(n).replace('T', ', ')}] INFO - {line}",
    "Airflow 3.3's page": lambda n, line: f"[{_time(n).replace('T', ' ')}] INFO - {line}",
    "Airflow 3.3's download": lambda n, line: f"[{_time(n)}.123456Z] INFO - {line}",
    "Airflow 3.3's download with sources": lambda n, line: (
        f"[{_time(n)}.123456Z] INFO - {line} source=airflow.task.hooks.X  loc=spark_submit.py:771 "
    ),
    "Airflow's JSON, no logger": _json,
    "Airflow's JSON, SparkSubmitOperator": _airflow_json("airflow.task.hooks.x.SparkSubmitHook"),
    "Airflow's JSON, LivyOperator": _airflow_json("airflow.providers.apache.livy.hooks.livy.LivyHook"),
    "Airflow's JSON, BashOperator": _airflow_json("airflow.task.hooks.x.SubprocessHook"),
    "Airflow's JSON, print": _airflow_json("task.stdout"),
    "Airflow's JSON, KubernetesPodOperator": lambda n, line: _json(
        n, f"[base] {line}", logger="airflow.providers.cncf.kubernetes.utils.pod_manager.PodManager"
    ),
    "Windows": lambda n, line: line + "\r\n",
    "colours": lambda n, line: f"\x1b[36m{line}\x1b[0m",
    "a collector": lambda n, line: json.dumps({"textPayload": line, "resource": {"type": "k8s"}}),
    "compose over Airflow's JSON": lambda n, line: f"worker-1  | {_json(n, line, logger='task.stdout')}",
    "kubectl over Airflow 2": lambda n, line: (
        f"{_NANOS(n % 60, n)} [{_time(n)}] {{a.py:1}} INFO - {line}"
    ),
}
each_wrapping = pytest.mark.parametrize("name", WRAPPINGS)


def wrapped(name, lines):
    return [WRAPPINGS[name](n, line.rstrip("\r\n")) for n, line in zip(count(), lines, strict=False)]


def answer(reading):
    return reading.outcome, reading.instant, reading.rival


BARE = {}


def wrong_in(name, paths):
    """Return the logs whose outcome differs from that of the bare log."""
    wrong = []
    for path in paths:
        _, exit_code, lines = recorded(path)
        bare = BARE[path] = BARE.get(path) or answer(read(lines, exit_code))
        found = answer(read(wrapped(name, lines), exit_code))
        wrong += [(path.name, bare, found)] if bare != found else []
    return wrong


@each_wrapping
def test_a_wrapped_log_has_the_outcome_of_the_bare_one(name):
    number = list(WRAPPINGS).index(name)
    assert not wrong_in(name, RECORDED[number % 16 :: 16])


@pytest.mark.nightly
@each_wrapping
def test_each_wrapped_log_has_the_outcome_of_the_bare_one(name):
    assert not wrong_in(name, RECORDED)


LOST = LOGS / "commit_conflict_info.exit1.log"


@pytest.mark.parametrize("path", [LOST, LOGS / "yarn" / "commit_conflict_warn.exit1.txt"])
def test_a_compressed_log_is_read_as_it_is(path, tmp_path, capsys):
    (log := tmp_path / "stderr.gz").write_bytes(gzip.compress(path.read_bytes()))
    outcome(log, "--exit-code", "1")
    assert "outcome    commit_conflict" in capsys.readouterr().out
    log.write_bytes(log.read_bytes()[:-20])
    with pytest.raises(SystemExit, match=r"stderr\.gz: Compressed file ended"):
        outcome(log)


COMPRESSIONS = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "PowerShell": lambda text: text.decode().replace("\n", "\r\n").encode("utf-16"),
    "UTF-16, big-endian": lambda text: b"\xfe\xff" + text.decode().encode("utf-16-be"),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "cut while it was written": lambda text: (
        b"\0" * 9000 + text.replace(b"INFO Spark", b"INFO\0 Spark", 1)
    ),
}


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_log_is_read_as_it_was_saved(name, tmp_path, capsys):
    log = tmp_path / "stderr"
    log.write_bytes(COMPRESSIONS[name](LOST.read_bytes()))
    outcome(log)
    saved = capsys.readouterr().out
    outcome(LOST)
    assert saved == capsys.readouterr().out


@pytest.mark.parametrize(
    ("head", "program"), [(b"\x28\xb5\x2f\xfd\0", "zstd"), (b"PK\x03\x04\0", "zip")]
)
def test_a_packed_log_names_what_packed_it(head, program, tmp_path):
    log = tmp_path / "stderr"
    log.write_bytes(head + bytes(99))
    with pytest.raises(SystemExit, match=f"packed with {program}. Unpack it first"):
        outcome(log)


def printed(container, **logs):
    parts = [f"Container: {container} on localhost_43211", "LogAggregationType: AGGREGATED", "==="]
    for name, lines in logs.items():
        parts += [f"LogType:{name}", "LogContents:", *lines, f"End of LogType:{name}", "*****", ""]
    return parts


FIRST = "container_e17_1795443032368_0001_01_000001"
SECOND = FIRST.replace("_01_", "_02_")
EXECUTOR = FIRST.replace("_000001", "_000002")


def test_of_several_attempts_the_last_decides_and_executors_do_not():
    own = printed(SECOND, stdout=traceback(["ValueError: y"]))
    others = [*printed(FIRST, stdout=traceback(JVM_CONFLICT)), *printed(EXECUTOR, stderr=JVM_CONFLICT)]
    for lines in ([*own, *others], [*others, *own]):
        assert read(lines, 1).outcome is Outcome.JOB_ERROR
    assert read(others, 1).outcome is Outcome.COMMIT_CONFLICT
    assert read(printed(EXECUTOR, stderr=JVM_CONFLICT), 1).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("\t pod name: load-driver", "pod name: load-driver"),
        ("INFO Client: Application report for application_17_42 (state: X)", "application_17_42"),
    ],
)
def test_the_log_of_spark_submit_alone_names_what_has_the_drivers(line, place):
    end = "org.apache.spark.SparkException: Application application_17_42 finished with failed status"
    reading = read([line, f'Exception in thread "main" {end}', "\tat a.b(C.java:1)", STOPPING], 1)
    assert reading.outcome is Outcome.UNKNOWN
    assert place in reading.lines
    assert "kubectl logs" in reading.remedy


def test_a_record_in_json_is_read_with_its_level_and_logger():
    def record(message, logger):
        return json.dumps({"ts": "x", "level": "INFO", "msg": message, "logger": logger})

    begun = record(f"Creating a new instant [==>{T}__commit__REQUESTED]", "ActiveTimelineV2")
    reading = read([begun, *traceback(JVM_CONFLICT), record("bye", "X")], 1)
    assert (reading.outcome, reading.instant) == (Outcome.COMMIT_CONFLICT, T)


@pytest.mark.parametrize("wrapping", ["Airflow's JSON, no logger", "Airflow 3.3's page"])
@pytest.mark.parametrize("lost", [Outcome.COMMIT_CONFLICT, Outcome.YIELDED, Outcome.CLUSTERING_CONFLICT])
def test_the_log_of_a_task_of_ours_ends_with_the_answer(wrapping, lost):
    told = [
        sentence(Failure(lost, T, "20261121092507999", ("d", "t"), ("city-0",), 1, seconds=9)),
        f"Outcome: {lost} (instant {T}, exit code 1).",
        f"Decided by: {CONFLICT}: {CAUSE}",
        FAILED,
    ]
    reading = read(wrapped(wrapping, told))
    assert answer(reading) == (lost, T, "20261121092507999")
    assert reading.lines == (f"{CONFLICT}: {CAUSE}",)


def test_what_a_job_prints_of_another_task_is_not_its_outcome():
    told = ["Outcome: committed (instant -, exit code 0).", "Error code is: -9"]
    lines = [*told, "26/11/21 10:00:17 INFO SparkContext: the job goes on", *traceback(JVM_CONFLICT)]
    assert read([*lines, FAILED]).outcome is Outcome.COMMIT_CONFLICT


def test_a_commit_before_the_drivers_failure_is_not_called_done():
    lines = (LOGS / "committed_info.exit0.log").read_text().splitlines()
    reading = read([*lines, *traceback(["ValueError: later"])], 1)
    assert reading.outcome is Outcome.COMMITTED
    assert "failed after it" in reading.remedy


def torn(lines, number):
    """A log whose line of that number, or what follows it, was lost or mixed with another line."""
    line, rest = lines[number].rstrip("\n"), lines[number + 1 :]
    half, other = len(line) // 2, "26/11/21 09:25:42 WARN X: y"
    return [
        lines[:number],
        [*lines[:number], line[:half], *rest],
        [*lines[:number], *rest],
        [*lines[:number], line[:half] + other, line[half:], *rest],
        [*lines[:number], line, other, *rest],
    ]


@each_recorded_log
def test_a_torn_log_is_read_right_or_not_at_all(path):
    """Never as another outcome: lines lost, cut, or mixed with those of another thread."""
    _, exit_code, lines = recorded(path)
    whole = read(lines, exit_code).outcome
    named = [n for n, line in enumerate(lines) if re.search(r"Traceback|Exception|Error|Caused", line)]
    numbers = random.Random(7).sample(named, min(len(named), 8))
    outcomes = {read(log, exit_code).outcome for number in numbers for log in torn(lines, number)}
    assert outcomes <= {whole, Outcome.UNKNOWN}


@each_recorded_log
@pytest.mark.parametrize("without", ["\t", "    "])
def test_a_log_without_its_tabs_is_read_right_or_not_at_all(path, without):
    _, exit_code, lines = recorded(path)
    bare = [line.replace("\t", "").strip() if without == "\t" else f"  12\t{line}" for line in lines]
    assert read(bare, exit_code).outcome in {read(lines, exit_code).outcome, Outcome.UNKNOWN}


def test_several_exceptions_that_may_have_ended_the_driver_are_all_shown():
    lock = f"{HUDI}.HoodieLockException: Unable to acquire the lock"
    frame = "\tat org.apache.hudi.client.X.y(X.java:1)"
    lines = ["26/11/21 10:00:17 WARN A: x", lock, frame, "26/11/21 10:00:18 ERROR B: x"]
    reading = read([*lines, f"{CONFLICT}: {CAUSE}", frame, STOPPING], 1)
    assert reading.outcome is Outcome.UNKNOWN
    assert reading.lines == (lock, f"{CONFLICT}: {CAUSE}")
    assert "several exceptions" in reading.remedy
    assert read([*lines, STOPPING], 1).outcome is Outcome.LOCK_TIMEOUT
    assert read([lock, STOPPING], 1).outcome is Outcome.UNKNOWN  # before the commit, or after it?


def test_what_is_no_text_is_refused_with_the_remedy(tmp_path):
    (log := tmp_path / "node").write_bytes(b"an IndexedFile\0\1\2")
    with pytest.raises(SystemExit, match=r"binary file.*yarn logs -applicationId"):
        outcome(log)
