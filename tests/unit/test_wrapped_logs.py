"""Saved logs of drivers in what other tools put around their lines."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from itertools import count

import pytest

from airflow_occ_provider.attempts.log.wrappings import Unwrapper
from airflow_occ_provider.attempts.outcome import Outcome
from tests.unit.test_outcome import (
    CAUSE,
    CONFLICT,
    JVM_CONFLICT,
    LOGS,
    RECORDED,
    T,
    read,
    recorded,
    traceback,
)
from tests.unit.test_printed_yarn_logs import outcome

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
    "cat -n": lambda n, line: f"{n + 1:6}\t{line}",
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
    return (
        reading.outcome,
        reading.instant,
        reading.rival,
        reading.own_instants,
        reading.conflict_checked,
    )


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


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.relative_to(LOGS)))
def test_a_bare_log_has_nothing_to_take_off(path):
    lines = recorded(path)[2]
    unwrapper = Unwrapper(lines)
    assert [line.text for raw in lines for line in unwrapper.unwrapped(raw)] == [
        line.rstrip("\r\n") for line in lines
    ]


LOST = LOGS / "commit_conflict_info.exit1.log"


def neighbour(n):
    return f"2026-11-21 09:00:{n % 60:02},{n:03} [myid:1] - INFO  [main:Leader@{n}] - serving"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("spark-1      | ", "zookeeper-1  | "),
        ("load-driver spark-kubernetes-driver ", "load-exec-1 spark-kubernetes-executor "),
        ("[pod/load-driver/spark-kubernetes-driver] ", "[pod/load-driver/istio-proxy] "),
    ],
)
def test_of_several_programs_only_the_drivers_lines_count(mine, theirs):
    _, exit_code, lines = recorded(LOST)
    mixed = []
    for n, line in enumerate(lines):
        mixed.append(mine + line)
        mixed.append(theirs + ("Traceback (most recent call last):" if n == 5 else neighbour(n)))
    assert answer(read(mixed, exit_code)) == answer(read(lines, exit_code))


def test_a_prefix_is_learned_although_another_program_logged_first():
    _, exit_code, lines = recorded(LOST)
    head = [f"Reading package lists {n}" for n in range(50)]
    found = read([*head, *(f"spark-1  | {line}" for line in lines)], exit_code)
    assert answer(found) == answer(read(lines, exit_code))


def test_the_end_of_a_task_is_seen_behind_another_prefix_than_the_drivers():
    lines = wrapped("Airflow 2 and a pod", recorded(LOST)[2])
    lines.append(
        "[2026-11-21T09:59:59.123+0000] {taskinstance.py:3311} ERROR - Task failed with exception"
    )
    assert read(lines).outcome is Outcome.COMMIT_CONFLICT


def test_a_task_that_failed_without_a_word_of_its_driver_is_no_error_of_the_job():
    lines = wrapped("[base]", ["26/11/21 09:00:00 INFO SparkContext: x"] * 3)
    assert read([*lines, "Task failed with exception"]).outcome is Outcome.UNKNOWN


REQUESTED = f"Creating a new instant [==>{T}__commit__REQUESTED]"
FRAME = {"class": "org.apache.hudi.client.X", "method": "y", "file": "X.java", "line": 108}
THROWN = [
    {"exception": {"class": CONFLICT, "msg": CAUSE, "stacktrace": [FRAME]}},
    {
        "exception": {
            "class": CONFLICT,
            "msg": CAUSE,
            "stacktrace": f"{CONFLICT}: {CAUSE}\n\tat a.B.c(B.java:1)",
        }
    },
    {
        "exception": {
            "class": "a.b.XException",
            "msg": "x",
            "stacktrace": [],
            "cause": {"class": CONFLICT},
        }
    },
    {"thrown": {"name": CONFLICT, "message": CAUSE, "extendedStackTrace": [FRAME]}},
    {"stack_trace": f"a.b.XException: x\n\tat a.B.c(B.java:1)\nCaused by: {CONFLICT}: {CAUSE}"},
    {"error.type": CONFLICT, "error.stack_trace": f"{CONFLICT}: {CAUSE}\n\tat a.B.c(B.java:1)"},
]


@pytest.mark.parametrize("thrown", THROWN)
@pytest.mark.parametrize("fields", [("ts", "msg", "logger"), ("@timestamp", "message", "logger_name")])
@pytest.mark.parametrize("wrapping", [None, "kubectl --timestamps", "docker's file", "[base]"])
def test_a_structured_record_of_spark_has_its_exception(thrown, fields, wrapping):
    def record(level, message, logger, **more):
        values = ("2026-11-21T09:06:10.123Z", message, logger)
        return json.dumps({**dict(zip(fields, values, strict=True)), "level": level, **more})

    lines = [
        record("INFO", "Running Spark version 4.0.1", "SparkContext"),
        record("INFO", REQUESTED, "ActiveTimelineV2"),
        record("ERROR", "Uncaught exception in thread main", "SparkUncaughtExceptionHandler", **thrown),
    ]
    reading = read(wrapped(wrapping, lines) if wrapping else lines, 1)
    assert (reading.outcome, reading.instant) == (Outcome.COMMIT_CONFLICT, T)


RECORD = "26/11/21 09:06:45 ERROR"
TRACE = [
    f"{CONFLICT}: {CAUSE}",
    "\tat org.apache.hudi.X.y(X.java:1)",
    f"Caused by: {CAUSE}",
    "\t... 9 more",
]
CAPTURED = "pyspark.errors.exceptions.captured"
STREAMING = f"{CAPTURED}.StreamingQueryException: [STREAM_FAILED] Query terminated with exception"
FAILED = "org.apache.spark.SparkException: Application application_17_42 finished with failed status"
STATUS = "User application exited with status 1"
ENDS = {
    "YARN's master": [f"{RECORD} ApplicationMaster: User class threw exception: {TRACE[0]}", *TRACE],
    "its last words": [
        f"{RECORD} ApplicationMaster: Final app status: FAILED, exitCode: 15, (reason: {TRACE[0]}"
    ],
    "YARN's client": [
        "26/11/21 09:06:46 INFO Client: ",
        f"\t diagnostics: User class threw exception: {TRACE[0]}",
        f'Exception in thread "main" {FAILED}',
    ],
    "Glue": [
        f"{RECORD} [main] glue.ProcessLauncher (Logging.scala:73): Error from Python:",
        *traceback(JVM_CONFLICT),
    ],
    "another thread": [f'Exception in thread "pool-24-thread-1" {TRACE[0]}', *TRACE[1:]],
    "Spark's handler": [
        f"{RECORD} SparkUncaughtExceptionHandler: Uncaught exception in thread x",
        *TRACE,
    ],
    "a stream": [f"{RECORD} MicroBatchExecution: Query [id = 1] terminated with error", *TRACE],
    "a stream in Python": [
        f"{RECORD} MicroBatchExecution: Query [id = 1] terminated with error",
        *TRACE,
        *traceback([STREAMING]),
    ],
    "Hudi Streamer": [f"{RECORD} HoodieStreamer: Shutting down delta-sync due to exception", *TRACE],
    "a paste of the cause": [f"Caused by: {TRACE[0]}", *TRACE[1:]],
    "a paste without tabs": [line.strip() for line in traceback(JVM_CONFLICT)],
}
LAST_LINES = (
    "Command exited with return code 1",
    "+ exit 1",
    "command terminated with exit code 1",
    "YARN Diagnostics: ",
    "Sentry is attempting to send 2 pending events",
    "make: *** [Makefile:7: load] Error 1",
)


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("wrapping", [None, "kubectl --timestamps", "Airflow 2", "[base]"])
def test_an_exception_that_ended_the_program_is_seen_whatever_printed_it(name, wrapping):
    for last in ((), LAST_LINES[:1], LAST_LINES):
        lines = [*(f"26/11/21 09:00:0{n} INFO SparkContext: x" for n in range(3)), *ENDS[name], *last]
        reading = read(wrapped(wrapping, lines) if wrapping else lines, 1)
        assert reading.outcome is Outcome.COMMIT_CONFLICT
        assert CONFLICT in " ".join(reading.lines)


@pytest.mark.parametrize("name", [name for name in ENDS if "main" not in str(ENDS[name])])
def test_such_an_exception_of_the_job_is_the_jobs_own(name):
    mine = [
        line.replace(CONFLICT, "com.example.LoadException").replace(CAUSE, "x") for line in ENDS[name]
    ]
    assert read(["26/11/21 09:00:00 INFO SparkContext: x", *mine], 1).outcome is Outcome.JOB_ERROR


SUBMITTERS = {
    "kubectl logs -n spark load-driver": [
        "26/11/21 09:00:02 INFO LoggingPodStatusWatcherImpl: State changed, new state: ",
        "\t pod name: load-driver",
        "\t namespace: spark",
        "\t phase: Failed",
    ],
    "yarn logs -applicationId application_17_42": [
        "26/11/21 09:00:04 INFO Client: Submitting application application_17_42 to ResourceManager",
        "26/11/21 09:06:46 INFO Client: Application report for application_17_42 (state: FINISHED)",
        f'Exception in thread "main" {FAILED}',
    ],
    "stdout of the driver's container": [
        "26/11/21 09:00:01 INFO SparkContext: Running Spark version 3.5.9",
        f"26/11/21 09:06:45 ERROR ApplicationMaster: {STATUS}",
        f"{RECORD} ApplicationMaster: Final app status: FAILED, exitCode: 13, (reason: {STATUS})",
    ],
}


@pytest.mark.parametrize("place", SUBMITTERS)
@pytest.mark.parametrize("wrapping", [None, "docker compose", "Airflow 3.3's download"])
def test_a_log_that_is_not_the_drivers_says_where_that_is(place, wrapping):
    lines = SUBMITTERS[place]
    reading = read(wrapped(wrapping, lines) if wrapping else lines, 1)
    assert reading.outcome is Outcome.UNKNOWN
    assert place in reading.lines[0]
    assert "job's own error" not in reading.remedy


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


DOCUMENTS = {
    "Livy's log": lambda lines: {
        "id": 7,
        "from": 0,
        "total": 9,
        "log": ["stdout: ", "\nstderr: ", *lines],
    },
    "a list": lambda lines: lines,
    "get-log-events": lambda lines: {"events": [{"timestamp": 1, "message": line} for line in lines]},
    "gcloud logging read": lambda lines: [{"textPayload": line, "severity": "INFO"} for line in lines],
    "Livy's statement": lambda lines: {
        "id": 0,
        "output": {"status": "error", "evalue": "\n".join(lines)},
    },
    "Databricks": lambda lines: {"error": "failed", "error_trace": "\n".join(lines), "metadata": {}},
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("path", [LOST, LOGS / "committed_info.exit0.log"])
def test_the_answer_of_a_service_has_the_lines_of_the_driver(name, path):
    _, exit_code, lines = recorded(path)
    document = json.dumps(DOCUMENTS[name]([line.rstrip("\r\n") for line in lines]))
    assert answer(read([document], exit_code)) == answer(read(lines, exit_code))


TRACE = "\n".join(["Traceback (most recent call last):", *JVM_CONFLICT])
LOGGED = {
    "logging": {
        "asctime": "2026-11-21 09:06:45",
        "levelname": "ERROR",
        "name": "load",
        "message": "failed",
    }
    | {"exc_info": TRACE},
    "structlog": {"timestamp": "2026-11-21T09:06:45Z", "level": "error", "event": "failed"}
    | {"exception": TRACE},
    "Spark 4, of a Python error": {"ts": "2026-11-21T09:06:45Z", "level": "ERROR", "msg": "failed"}
    | {"logger": "x", "exception": {"class": "Py4JJavaError", "msg": "\n".join(JVM_CONFLICT)}},
}


@pytest.mark.parametrize("name", LOGGED)
def test_an_exception_that_the_job_logged_in_json_is_seen(name):
    lines = [f"26/11/21 09:01:01 INFO HoodieActiveTimeline: {REQUESTED}", json.dumps(LOGGED[name])]
    reading = read(lines, 1)
    assert (reading.outcome, reading.instant) == (Outcome.COMMIT_CONFLICT, T)


def task_failed(kind, value, **more):
    error = {"exc_type": kind, "exc_value": value, "is_cause": False, "frames": [], **more}
    return [_json(5, "Task failed with exception", logger="task", error_detail=[error])]


PY4J = "An error occurred while calling o212.save.\n: "
IN_PROCESS = {
    "Airflow 3's JSON": task_failed("Py4JJavaError", f"{PY4J}{CONFLICT}: {CAUSE}\n\tat a.B.c(B.java:1)"),
    "Airflow 3's page": [
        "[2026-11-21 09:06:46] ERROR - Task failed with exception",
        *f"Py4JJavaError: {PY4J}{CONFLICT}: {CAUSE}".split("\n"),
        'File "/opt/dags/load.py", line 12 in load',
    ],
    "Airflow 2": [
        "[2026-11-21T09:06:46.123+0000] {taskinstance.py:2905} ERROR - Task failed with exception",
        "Traceback (most recent call last):",
        '  File "/opt/dags/load.py", line 12, in load',
        *f"py4j.protocol.Py4JJavaError: {PY4J}{CONFLICT}: {CAUSE}".split("\n"),
        "[2026-11-21T09:06:46.200+0000] {taskinstance.py:1225} INFO - Marking task as FAILED.",
    ],
    "Databricks' operator": task_failed(
        "AirflowException",
        f"Job run failed with the errors [{{'task_key': 'x', 'error': '{PY4J}{CONFLICT}: {CAUSE}'}}]",
    ),
    "Glue's operator": task_failed(
        "AirflowException", f"Error in job run: Py4JJavaError: failed. {CAUSE}"
    ),
    "the tail of spark-submit": task_failed(
        "AirflowException", f"Cannot execute: spark-submit x.py. Error code is: 1.\n{TRACE}"
    ),
}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_the_error_of_the_task_is_the_drivers_if_that_left_none(name):
    assert read(IN_PROCESS[name]).outcome is Outcome.COMMIT_CONFLICT


def test_the_error_of_the_task_does_not_undo_a_commit():
    lines = wrapped("Airflow's JSON, print", recorded(LOGS / "committed_info.exit0.log")[2])
    assert read([*lines, *IN_PROCESS["Airflow 3's JSON"]]).outcome is Outcome.COMMITTED


def test_an_error_of_the_task_that_hudi_did_not_throw_is_none_of_hudi():
    assert read(task_failed("ValueError", "bad rate")).outcome is Outcome.UNKNOWN


HOODIE = "org.apache.hudi.exception.Hoodie"
EARLY = (
    f"{HOODIE}EarlyConflictDetectionException: java.util.ConcurrentModificationException: "
    "Early conflict detected but cannot resolve conflicts for overlapping writes"
)
CONNECT = "pyspark.errors.exceptions.connect.SparkConnectGrpcException"
NESTED = [
    (f"{CONNECT}: ({CONFLICT}) {CAUSE}", Outcome.COMMIT_CONFLICT),
    (
        f"{CONNECT}: (org.apache.hudi.exception.HoodieLockException) Unable to acquire lock, lock x",
        Outcome.LOCK_TIMEOUT,
    ),
    (f"pyspark.errors.exceptions.captured.SparkRuntimeException: [X] {CAUSE}", Outcome.COMMIT_CONFLICT),
    (f"{HOODIE}Exception: java.util.concurrent.ExecutionException: {EARLY}", Outcome.EARLY_CONFLICT),
    ("pyspark.errors.exceptions.captured.AnalysisException: a.b.c: no such column", Outcome.JOB_ERROR),
]


@pytest.mark.parametrize(("error", "expected"), NESTED)
@pytest.mark.parametrize("of_python", [True, False])
def test_an_exception_within_the_text_of_another_decides(error, expected, of_python):
    of_jvm = ["py4j.protocol.Py4JJavaError: An error occurred.", f": {error}"]
    thrown = [error] if error.startswith("pyspark") else of_jvm
    lines = traceback(thrown) if of_python else [f'Exception in thread "main" {error}']
    assert read(lines, 1).outcome is expected
