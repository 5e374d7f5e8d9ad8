"""The submitter of EMR Serverless's job runs against a client with recorded answers."""

from __future__ import annotations

import gzip
import io
import json
import signal
import threading
import time

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    NotSubmittedError,
    StateStoreError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters import emr_serverless as module
from airflow_occ_provider.submitters.emr_serverless import EmrServerless
from airflow_occ_provider.submitters.emr_serverless_job import (
    EmrApplication,
    job_run_request,
    run_token,
    token_prefix,
)
from airflow_occ_provider.submitters.emr_serverless_log import driver_log
from airflow_occ_provider.submitters.signal_call import call_apart
from tests.unit.test_livy import PROTECTED, Told, fact

KEY = "7b4f2d6e-6a1d-4a52-9d9e-0c6d0a0f4c11"
TARGET = EmrApplication("app1", "arn:aws:iam::123456789012:role/job", "s3://logs/emr")
PATIENCE_S = 60
END = fact(fact="end", exit_code=0)
PLACE = "connection 'c' service_config.emr-serverless"


def refused(code="ValidationException", status=400):
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "StartJobRun")


AWAY = EndpointConnectionError(endpoint_url="https://emr")


class Client:
    """Answers as the API's reference describes it, two job runs a page."""

    def __init__(self):
        self.runs, self.calls, self.errors, self.lost = {}, [], [], 0
        self.on_list = lambda _: None

    def _called(self, name, request):
        self.calls.append((name, request))
        if self.errors:
            raise self.errors.pop(0)

    def start_job_run(self, **request):
        self._called("start", request)
        known = [one for one, run in self.runs.items() if run["clientToken"] == request["clientToken"]]
        name = known[0] if known else f"r{len(self.runs)}"
        self.runs.setdefault(name, {**request, "jobRunId": name, "state": "SUBMITTED"})
        if self.lost:
            self.lost -= 1
            raise AWAY
        return {"applicationId": request["applicationId"], "jobRunId": name}

    def get_job_run(self, **request):
        self._called("get", request)
        if request["jobRunId"] not in self.runs:
            raise refused("ResourceNotFoundException", 404)
        return {"jobRun": self.runs[request["jobRunId"]]}

    def list_job_runs(self, **request):
        self._called("list", request)
        self.on_list(request["states"])
        found = [
            {"id": name, "name": run["name"], "state": run["state"]}
            for name, run in self.runs.items()
            if run["state"] in request["states"]
        ]
        begin = int(request.get("nextToken", 0))
        more = {"nextToken": str(begin + 2)} if len(found) > begin + 2 else {}
        return {"jobRuns": found[begin : begin + 2], **more}

    def cancel_job_run(self, **request):
        self._called("cancel", request)
        run = self.runs[request["jobRunId"]]
        if run["state"] not in ("SUCCESS", "FAILED", "CANCELLED"):
            run["state"] = "CANCELLED"
        return {}

    def named(self, name):
        return [request for called, request in self.calls if called == name]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    monkeypatch.setattr(module, "_LOG_S", 0.1)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def report():
    return Told()


@pytest.fixture
def emr(client, report):
    return made(client, report)


def made(client, report=None, **options):
    return EmrServerless(
        client,
        "app1",
        job_run_request(TARGET, "s3a://lake/f/a1/run_job.py", ["s3a://lake/f/a1/payload.json"], {}),
        report="s3a://lake/f/a1b2c3d4.jsonl",
        open_report=(lambda _: report) if report else None,
        log_uri="s3://logs/emr",
        **{"poll_s": 0, "end_s": 0.1, **options},
    )


def begun(client, one):
    handle = one.submit(KEY, lambda _: None)
    client.runs[handle.facts["job_run"]]["state"] = "RUNNING"
    return handle


def ends(client, handle, state="SUCCESS", details=""):
    client.runs[handle.facts["job_run"]].update(state=state, stateDetails=details)


def read_all(one, handle):
    lines, deadline = [], time.monotonic() + 10
    while (found := one.read(handle, 0.01)) is not None:
        assert time.monotonic() < deadline
        lines += found
    return lines


def test_a_job_run_is_named_by_its_task_run_and_its_attempt(client, emr):
    recorded = []
    handle = emr.submit(KEY, recorded.append)
    assert recorded == [handle]
    (request,) = client.named("start")
    assert request["name"] == request["clientToken"] == f"airflow_occ_{KEY}_a1b2c3d4"
    assert (request["mode"], request["retryPolicy"]) == ("BATCH", {"maxAttempts": 1})
    assert json.loads(json.dumps(handle.to_json())) == {
        "submitter": "emr_serverless",
        "name": "EMR Serverless job run r0",
        "application": "app1",
        "job_run": "r0",
        "report": "s3a://lake/f/a1b2c3d4.jsonl",
        "logs": "s3://logs/emr",
    }


@pytest.mark.parametrize("key", [KEY, f"{KEY}-clean", "x" * 300, "a key / of another kind"])
def test_a_token_is_what_aws_takes(key):
    for report in ("s3://b/a1b2c3d4.jsonl", "", "s3://b/a name that is too long.jsonl"):
        token = run_token(key, report)
        assert len(token) <= 64
        assert token.startswith(token_prefix(key))
        assert token.replace("-", "").replace("_", "").isalnum()


def test_the_job_run_of_another_task_run_is_not_found(client, emr):
    begun(client, emr)
    assert emr.find(f"{KEY}-clean") is None
    assert emr.find(KEY[:-1]) is None


def test_a_lost_answer_leaves_one_job_run_that_is_found(client, report):
    one = made(client, report, report_of=lambda key, attempt: f"s3a://f/{key}/{attempt}.jsonl")
    client.lost = 1
    with pytest.raises(SubmitterUnreachableError):
        one.submit(KEY, lambda _: None)
    found = one.find(KEY)
    assert found.facts["report"] == f"s3a://f/{KEY}/a1b2c3d4.jsonl"
    assert len(client.runs) == 1


def test_a_refusal_after_a_lost_answer_is_none(client, emr):
    """boto3 repeats a lost request: AWS may call the second one a conflict."""
    token = run_token(KEY, emr.report)
    client.runs["r0"] = {"clientToken": token, "name": token, "state": "PENDING", "jobRunId": "r0"}
    listed = client.list_job_runs
    hidden = iter([True] * 7)  # while it is looked for before the submission
    client.list_job_runs = lambda **given: {} if next(hidden, False) else listed(**given)
    client.start_job_run = lambda **_: (_ for _ in ()).throw(refused("ConflictException", 409))
    assert emr.submit(KEY, lambda _: None).facts["job_run"] == "r0"


def test_a_refused_job_run_names_what_aws_says(client, emr):
    client.start_job_run = lambda **_: (_ for _ in ()).throw(refused())
    with pytest.raises(ConfigurationError, match=r"job run: EMR Serverless refuses it: .*Validation"):
        emr.submit(KEY, lambda _: None)
    client.start_job_run = lambda **_: (_ for _ in ()).throw(ParamValidationError(report="bad"))
    with pytest.raises(ConfigurationError, match="bad"):
        emr.submit(KEY, lambda _: None)
    client.start_job_run = lambda **_: (_ for _ in ()).throw(refused("ResourceNotFoundException", 404))
    with pytest.raises(ConfigurationError, match="there is no application app1"):
        emr.submit(KEY, lambda _: None)


def test_an_application_that_takes_no_job_run_now_is_a_retry(client, emr):
    client.start_job_run = lambda **_: (_ for _ in ()).throw(refused("ConflictException", 409))
    with pytest.raises(NotSubmittedError, match="app1 takes no job run now"):
        emr.submit(KEY, lambda _: None)


@pytest.mark.parametrize(
    "error",
    [
        AWAY,
        refused("ThrottlingException", 429),
        refused("ThrottlingException"),
        refused("ExpiredTokenException", 403),
        refused("InternalServerException", 500),
    ],
)
def test_what_says_nothing_about_a_request_is_no_refusal(client, emr, error):
    client.start_job_run = lambda **_: (_ for _ in ()).throw(error)
    with pytest.raises(SubmitterUnreachableError):
        emr.submit(KEY, lambda _: None)


def test_no_second_driver_is_started_beside_a_living_one(client, emr, report):
    begun(client, emr)
    other = made(client, report)
    with pytest.raises(NotSubmittedError, match="r0 of this task run is alive"):
        other.submit(KEY, lambda _: None)
    assert len(client.runs) == 1


@pytest.mark.parametrize("waiting", [("QUEUED", "PENDING"), ("PENDING", "QUEUED")])
def test_a_job_run_that_moves_on_whenever_it_would_be_listed_is_found(client, emr, waiting):
    states = ["SUBMITTED", *waiting, "SCHEDULED", "RUNNING", "CANCELLING"]
    run = client.runs[emr.submit(KEY, lambda _: None).facts["job_run"]]

    def moves_on(listed):
        if run["state"] in listed and run["state"] != states[-1]:
            run["state"] = states[states.index(run["state"]) + 1]

    client.on_list = moves_on
    assert emr.find(KEY).facts["job_run"] == "r0"


def test_a_job_run_on_a_later_page_is_found(client, emr):
    for number in range(7):
        client.runs[f"o{number}"] = {"name": "other", "clientToken": "", "state": "RUNNING"}
    assert begun(client, emr).facts["job_run"] == emr.find(KEY).facts["job_run"] == "r7"


def test_the_journal_that_refuses_a_handle_leaves_a_run_that_is_found(client, emr):
    def refuses(_):
        raise StateStoreError("away")

    with pytest.raises(StateStoreError):
        emr.submit(KEY, refuses)
    assert emr.find(KEY).facts["job_run"] == "r0"


def test_the_report_is_read_while_the_driver_runs(client, emr, report):
    handle = begun(client, emr)
    report.waiting = [PROTECTED]
    assert emr.read(handle, 0) == [PROTECTED]
    assert emr.poll(handle) == Running()
    ends(client, handle)
    report.waiting = [END]
    assert read_all(emr, handle) == [END]
    assert emr.poll(handle) == Ended(0)
    assert emr.traits.end_is_final


def test_a_queued_job_run_runs(client, emr):
    handle = begun(client, emr)
    for state in ("SUBMITTED", "PENDING", "QUEUED", "SCHEDULED", "RUNNING", "CANCELLING", "NEW_STATE"):
        ends(client, handle, state)
        assert emr.poll(handle) == Running()


@pytest.mark.parametrize(
    ("state", "reported", "code", "is_final"),
    [
        ("SUCCESS", [PROTECTED, END], 0, True),
        ("SUCCESS", [], 0, True),
        ("FAILED", [PROTECTED, fact(fact="end", exit_code=3)], 3, True),
        ("FAILED", [fact(fact="not_protected", reason="r")], 78, True),
        ("FAILED", [PROTECTED], -9, False),
        ("FAILED", [], 1, False),
        ("CANCELLED", [PROTECTED], -15, True),
    ],
)
def test_an_end_is_final_if_something_proves_it(client, state, reported, code, is_final):
    told = []

    def open_report(_):
        one = Told()
        one.waiting = list(reported)
        told.append(one)
        return one

    one = made(client, None)
    one.open_report = open_report
    handle = begun(client, one)
    ends(client, handle, state)
    assert read_all(one, handle) == reported
    assert one.poll(handle).exit_code == code
    assert one.traits.end_is_final is is_final
    later = EmrServerless(client, "app1", open_report=open_report)
    later.poll(handle)
    assert later.traits.end_is_final is is_final


def test_a_run_that_is_not_known_is_unseen(client, emr):
    handle = begun(client, emr)
    client.runs.clear()
    state = emr.poll(handle)
    assert isinstance(state, Unseen)
    assert not state.is_away
    assert emr.read(handle, 0) is None


def test_a_service_that_does_not_answer_is_asked_again_for_a_while(client, emr):
    handle = begun(client, emr)
    client.errors = [AWAY]
    assert emr.read(handle, 0) == []
    client.errors = [AWAY]
    assert emr.poll(handle).is_away
    assert emr.poll(handle) == Running()
    emr.patience.limit_s = 0
    client.errors = [AWAY] * 2
    assert not emr.poll(handle).is_away
    with pytest.raises(SubmitterUnreachableError):
        emr.read(handle, 0)
    client.errors = [refused("AccessDeniedException", 403)]
    with pytest.raises(SubmitterUnreachableError, match="does not show its job runs"):
        emr.find(KEY)


def test_an_ended_driver_is_cancelled_and_loses_its_input(client, report):
    discarded = []
    one = made(client, report, discard=discarded.append)
    handle = begun(client, one)
    one.end(handle)
    assert one.poll(handle) == Ended(-15, log_is_whole=False)
    assert discarded == ["s3a://lake/f/a1b2c3d4.jsonl"]
    one.end(handle)
    assert len(client.named("cancel")) == 1
    one.end(Handle(one.name, "of another kind", {"pid": 1}))


def test_a_cancellation_that_was_lost_is_repeated(client, emr, monkeypatch):
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    handle = begun(client, emr)
    cancel, client.cancel_job_run = client.cancel_job_run, lambda **_: {}
    emr.end(handle)
    assert emr.poll(handle) == Running()
    client.cancel_job_run = lambda **_: (_ for _ in ()).throw(AWAY)
    emr.end(handle)
    client.cancel_job_run = cancel
    emr.end(handle)
    assert isinstance(emr.poll(handle), Ended)


def test_a_task_that_is_asked_to_stop_cancels_its_run_whatever_it_has_interrupted(client, emr):
    handle, lock = begun(client, emr), threading.Lock()
    asked = client.cancel_job_run

    def cancel(**request):
        with lock:
            return asked(**request)

    client.cancel_job_run = cancel

    def stopped(*_):
        emr.killed.set()
        emr.end(handle)

    before = signal.signal(signal.SIGUSR1, stopped)
    try:
        began = time.monotonic()
        with lock:  # what a client holds while it makes a request
            signal.raise_signal(signal.SIGUSR1)
        assert time.monotonic() - began < PATIENCE_S
    finally:
        signal.signal(signal.SIGUSR1, before)
    read_all(emr, handle)
    assert emr.poll(handle).exit_code == -15


def test_a_call_apart_is_waited_for_but_not_for_long():
    seen, gate = [], threading.Event()
    call_apart(lambda: seen.append(1), 5)
    assert seen == [1]
    began = time.monotonic()
    call_apart(gate.wait, 0.1)
    assert time.monotonic() - began < PATIENCE_S
    gate.set()


def packed(*lines):
    return gzip.compress("".join(lines).encode())


class Files(dict):
    def open(self, url):
        return io.BytesIO(self[url])


DRIVER = "s3://logs/emr/applications/app1/jobs/r0"


def test_the_log_of_the_driver_follows_without_the_facts_of_its_report(client, report):
    files = Files({f"{DRIVER}/SPARK_DRIVER/stdout.gz": packed("mine\n", PROTECTED, END)})
    files[f"{DRIVER}/SPARK_DRIVER/stderr.gz"] = packed("of the JVM\n")
    one = made(client, report, open_log=files.open)
    handle = begun(client, one)
    report.waiting = [PROTECTED, END]
    ends(client, handle)
    assert read_all(one, handle) == [PROTECTED, END, "mine\n", "of the JVM\n"]
    assert one.poll(handle) == Ended(0)


def test_a_log_that_comes_late_replaces_a_report_that_is_not_there(client, report, monkeypatch):
    monkeypatch.setattr(module, "_LOG_S", 30.0)
    files = Files()
    one = made(client, report, open_log=files.open)
    handle = begun(client, one)
    ends(client, handle, "FAILED", "Job failed, please check complete logs")
    assert one.read(handle, 0) == []
    assert one.read(handle, 0) == []
    failed = fact(fact="end", exit_code=2)
    files[f"{DRIVER}/attempts/1/SPARK_DRIVER/stdout.gz"] = packed(PROTECTED, "Traceback\n", failed)
    lines = read_all(one, handle)
    reason = "EMR Serverless: FAILED: Job failed, please check complete logs\n"
    assert lines == [PROTECTED, "Traceback\n", failed, reason]
    assert one.poll(handle) == Ended(2, log_is_whole=False)


def test_a_log_that_never_comes_is_not_waited_for_long(client, report):
    one = made(client, report, open_log=Files().open)
    handle = begun(client, one)
    ends(client, handle, "FAILED")
    assert read_all(one, handle) == []


def test_of_a_long_log_the_end_is_shown_and_where_the_rest_is():
    url = f"{DRIVER}/SPARK_DRIVER/stdout.gz"
    files = Files({url: packed(*(f"{number}\n" for number in range(2500)))})
    files[f"{DRIVER}/SPARK_DRIVER/stderr.gz"] = b"not packed"
    lines = driver_log(files.open, "s3://logs/emr/", "app1", "r0")
    assert lines[0] == f"(1500 lines before these are in {url})\n"
    assert lines[-1] == "2499\n"
    assert len(lines) == 1001
    assert driver_log(files.open, "s3://elsewhere", "app1", "r0") is None


def test_a_request_adds_to_what_the_connection_gives():
    given = {
        "tags": {"team": "a"},
        "executionTimeoutMinutes": 1440,
        "configurationOverrides": {
            "applicationConfiguration": [
                {"classification": "spark-driver-log4j2"},
                {"classification": "spark-defaults", "properties": {"spark.a": "1", "spark.b": "1"}},
            ],
            "monitoringConfiguration": {"cloudWatchLoggingConfiguration": {"enabled": True}},
        },
    }
    settings = {"application_id": "app1", "execution_role_arn": "arn:1", "log_uri": "s3://l"}
    target = EmrApplication.of({**settings, "config": given}, PLACE)
    made = job_run_request(target, "s3a://b/run_job.py", ["p"], {"spark.b": True, "spark.c": None})
    assert made["tags"] == {"team": "a"}
    assert made["executionTimeoutMinutes"] == 1440
    assert made["jobDriver"] == {
        "sparkSubmit": {"entryPoint": "s3://b/run_job.py", "entryPointArguments": ["p"]}
    }
    overrides = made["configurationOverrides"]
    assert overrides["applicationConfiguration"][1]["properties"] == {"spark.a": "1", "spark.b": "true"}
    assert overrides["monitoringConfiguration"] == {
        "cloudWatchLoggingConfiguration": {"enabled": True},
        "s3MonitoringConfiguration": {"logUri": "s3://l"},
    }
    classes = given["configurationOverrides"]["applicationConfiguration"]
    assert classes[1]["properties"] == {"spark.a": "1", "spark.b": "1"}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (
            {"retryPolicy": {"maxAttempts": 3}},
            r"config\.retryPolicy: with .* runs a failed driver again",
        ),
        ({"retryPolicy": {"maxFailedAttemptsPerHour": 1}}, r"config\.retryPolicy: .*task's retries"),
        ({"mode": "STREAMING"}, r"config\.mode: .*STREAMING again whenever it fails.*set it to BATCH"),
        ({"clientToken": "mine"}, r"config\.clientToken: .*remove it"),
        ({"jobDriver": {}}, r"config\.jobDriver: "),
        ({"name": "mine"}, r"config\.name: "),
    ],
)
def test_what_would_run_a_driver_twice_is_refused(config, named):
    settings = {"application_id": "app1", "execution_role_arn": "arn:1", "config": config}
    with pytest.raises(
        ConfigurationError, match=f"connection 'c' service_config.emr-serverless.{named}"
    ):
        EmrApplication.of(settings, PLACE)


def test_what_changes_nothing_is_allowed():
    config = {"mode": "BATCH", "retryPolicy": {"maxAttempts": 1}}
    settings = {"application_id": "app1", "execution_role_arn": "arn:1", "config": config}
    target = EmrApplication.of({**settings, "endpoint_url": "http://x"}, PLACE)
    assert job_run_request(target, "s3://x", [], {})["retryPolicy"] == {"maxAttempts": 1}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, r"application_id: .*needs it.*extra of the AWS connection"),
        ({"application_id": "a"}, "execution_role_arn: "),
        ({"application_id": "a", "execution_role_arn": "r", "mode": "BATCH"}, r"mode: .*config is for"),
    ],
)
def test_a_connection_that_lacks_something_is_refused(settings, named):
    with pytest.raises(ConfigurationError, match=named):
        EmrApplication.of(settings, PLACE)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({"spark.master": "yarn"}, "conf spark.master: EMR Serverless sets it itself"),
        ({"spark.submit.deployMode": "cluster"}, "conf spark.submit.deployMode"),
        ({"spark.jars": "x" * 1025}, "conf spark.jars: .*up to 1024 characters, not 1025"),
        ({f"spark.a{number}": "1" for number in range(101)}, "conf: .*100 properties.*not 101"),
    ],
)
def test_properties_that_emr_serverless_does_not_take_are_refused(conf, named):
    with pytest.raises(ConfigurationError, match=named):
        job_run_request(TARGET, "s3://x", [], conf)
