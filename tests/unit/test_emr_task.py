"""A task whose connection names an application of EMR Serverless, by moto and without Spark."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from botocore.exceptions import ClientError

from airflow_occ_provider.attempts.clean_run import run_clean
from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.submitter import Handle, Running
from airflow_occ_provider.errors import (
    ConfigurationError,
    DriverKilledError,
    TaskEndedError,
    WriteConflictError,
)
from airflow_occ_provider.hooks import emr_serverless as module
from airflow_occ_provider.hooks import staged
from airflow_occ_provider.hooks.drivers import LocalDrivers
from airflow_occ_provider.hooks.submitters import follower, service_of
from airflow_occ_provider.operators.spark_run import SparkRun
from airflow_occ_provider.submitters import emr_serverless as submitter
from airflow_occ_provider.submitters.spark_submit import Flag
from tests.emr import BUCKET, ROLE, emulated_emr
from tests.unit.test_livy import PROTECTED
from tests.unit.test_livy_task import (
    CHECKED,
    CONFLICT,
    END,
    REQUESTED,
    deferred,
    event_of,
    quick_trigger,
    resume,
    starter,
)
from tests.unit.test_record import Store
from tests.unit.test_table import T1, C, add

PLACE = f"s3://{BUCKET}/occ"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(submitter, "_LOOK_S", 0.01)
    monkeypatch.setattr(submitter, "_LOG_S", 0.1)
    made = module.EmrService.submitter

    def quick_one(*given, **more):
        one = made(*given, **more)
        one.poll_s, one.end_s = 0.0, 0.05
        return one

    monkeypatch.setattr(module.EmrService, "submitter", quick_one)
    with quick_trigger(monkeypatch):
        yield


@pytest.fixture(scope="module")
def server():
    with emulated_emr(None) as one:
        yield one


@pytest.fixture
def emr(server):
    """The server without earlier requests."""
    for one in server.job_runs:
        one.state = "CANCELLED"
    server.requests.clear()
    s3 = server.client("s3")
    for one in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        s3.delete_object(Bucket=BUCKET, Key=one["Key"])
    return server


@pytest.fixture
def connection(emr, monkeypatch):
    def make(extra=None, **more):
        settings = {"application_id": emr.application, "execution_role_arn": ROLE, "report_path": PLACE}
        value = emr.connection
        value["extra"] = {
            **value["extra"],
            "service_config": {"emr-serverless": {**settings, **more}},
            **(extra or {}),
        }
        monkeypatch.setenv("AIRFLOW_CONN_MY_EMR", json.dumps(value))

    make()
    return make


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, connection, store, tmp_path):
    return starter("my_emr", folder, store, tmp_path)


def files(emr):
    found = emr.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", ())
    return [one["Key"] for one in found]


def content(emr, url):
    _, _, name = url.partition("://")
    bucket, _, key = name.partition("/")
    return emr.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()


def runs(emr, *lines, state="SUCCESS"):
    """What the job run does: it reads its input and writes its report."""
    submit = emr.requests[-1]["jobDriver"]["sparkSubmit"]
    given = json.loads(content(emr, submit["entryPointArguments"][-1]))
    assert content(emr, given["application"]) == "print('mine')"
    assert content(emr, submit["entryPoint"]).startswith('"""Runs a user')
    key = given["report"]["url"].removeprefix(f"s3://{BUCKET}/")
    emr.client("s3").put_object(Bucket=BUCKET, Key=key, Body="".join(lines).encode())
    emr.job_runs[-1].state = state
    return given


def commits(emr, folder, store):
    given = runs(emr, PROTECTED, REQUESTED, CHECKED, END)
    assert given["options"][IDENTITY_KEY] == store["hudi_write"]["identity"]
    add(folder, f"{T1}_{C}.commit", identity=store["hudi_write"]["identity"])


def test_a_task_defers_while_its_job_run_lasts_and_finds_its_commit(start, emr, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    assert len(files(emr)) == 3  # the driver may not have read its input yet
    commits(emr, folder, store)
    event = event_of(wait.trigger)
    assert (event["status"], event["stop"]) == ("ended", None)
    assert [kept[:2] for kept in event["facts"]["instants"]] == [[T1, "commit"]]
    assert resume(start, wait, event)["instant"] == T1
    assert len(emr.requests) == 1
    assert files(emr) == []
    (kept,) = store["hudi_write"]["attempts"]
    assert (kept["end"], kept["log_read"], kept["settled"]) == ("exit code 0", True, True)


def test_a_request_has_no_secret_and_the_journal_neither(start, emr, store):
    task, context = start(hudi_options={"hoodie.datasource.hive_sync.password": "hush"})
    task, context = start(application_args=["--token", "hush-hush"])
    deferred(task.execute, context)
    assert "hush" not in json.dumps(emr.requests)
    assert "hush" not in json.dumps(store)


def test_a_lost_conflict_is_read_from_the_report_and_the_next_try_runs_anew(start, emr, store):
    task, context = start()
    wait = deferred(task.execute, context)
    runs(emr, *CONFLICT, state="FAILED")
    with pytest.raises(WriteConflictError):
        resume(start, wait, event_of(wait.trigger))
    assert files(emr) == []
    task, context = start(2)
    deferred(task.execute, context)
    first, second = (one["clientToken"] for one in emr.requests)
    identity = store["hudi_write"]["identity"]
    assert first != second
    assert all(one.startswith(f"airflow_occ_{identity}_") for one in (first, second))


def test_a_task_that_keeps_its_slot_follows_the_job_run_itself(start, emr, folder, store, monkeypatch):
    begin = submitter.EmrServerless._start

    def begins(one, token):
        name = begin(one, token)
        commits(emr, folder, store)
        return name

    monkeypatch.setattr(submitter.EmrServerless, "_start", begins)
    task, context = start(deferrable=False)
    assert task.execute(context)["instant"] == T1
    assert files(emr) == []


def test_the_next_try_follows_a_job_run_whose_worker_died(start, emr):
    task, context = start()
    first = deferred(task.execute, context)
    task, context = start(2)
    again = deferred(task.execute, context)
    assert again.trigger.driver == first.trigger.driver
    assert len(emr.requests) == 1


def test_a_job_run_that_was_not_recorded_is_found_with_its_report(start, emr, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    store["hudi_write"]["attempts"][0]["driver"] = None  # the worker died in between
    emr.job_runs[-1].state = "RUNNING"
    task, context = start(2)
    again = deferred(task.execute, context)
    assert again.trigger.driver == wait.trigger.driver
    assert len(emr.requests) == 1
    commits(emr, folder, store)
    assert resume(start, again, event_of(again.trigger), 2)["instant"] == T1


def test_a_job_run_whose_answer_was_lost_is_found_and_cancelled(start, emr, store, monkeypatch):
    begin = submitter.EmrServerlessApi.start

    def loses(api, request):
        begin(api, request)
        raise submitter.SubmitterUnreachableError("away")

    monkeypatch.setattr(submitter.EmrServerlessApi, "start", loses)
    task, context = start()
    with pytest.raises(submitter.SubmitterUnreachableError):
        task.execute(context)
    (one,) = (one for one in emr.job_runs if one.client_token == emr.requests[-1]["clientToken"])
    assert one.state == "CANCELLING"
    (kept,) = store["hudi_write"]["attempts"]
    assert kept["driver"]["job_run"] == one.id


def test_ending_a_deferred_task_cancels_its_job_run_and_removes_its_input(start, emr):
    task, context = start()
    wait = deferred(task.execute, context)
    asyncio.run(asyncio.wait_for(on_kill(emr, wait.trigger), 30))
    assert emr.job_runs[-1].state == "CANCELLED"
    assert files(emr) == []


async def on_kill(emr, trigger):
    async def cancels():
        while emr.job_runs[-1].state != "CANCELLING":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        emr.job_runs[-1].state = "CANCELLED"

    await asyncio.gather(trigger.on_kill(), cancels())


def test_a_driver_that_failed_without_a_word_leaves_no_input_and_no_final_end(start, emr, store):
    task, context = start()
    wait = deferred(task.execute, context)
    runs(emr, PROTECTED, state="FAILED")
    with pytest.raises(DriverKilledError):
        resume(start, wait, event_of(wait.trigger))
    (kept,) = store["hudi_write"]["attempts"]
    assert (kept["end"], kept["outcome"], kept["settled"]) == ("", "killed", False)
    assert [name.rpartition(".")[2] for name in files(emr)] == ["jsonl"]
    task, context = start(2)
    assert deferred(task.execute, context).method_name == "execute_after_wait"  # for heartbeats
    assert len(emr.requests) == 1


def test_ending_a_task_that_follows_its_job_run_cancels_it(start, emr, monkeypatch):
    task, context = start(deferrable=False)
    cancel = submitter.EmrServerlessApi.cancel

    def reads(one, handle, wait_s):
        task.on_kill()
        return read(one, handle, wait_s)

    def cancels(api, application, job_run):
        cancel(api, application, job_run)
        emr.job_runs[-1].state = "CANCELLED"

    read = submitter.EmrServerless.read
    monkeypatch.setattr(submitter.EmrServerless, "read", reads)
    monkeypatch.setattr(submitter.EmrServerlessApi, "cancel", cancels)
    with pytest.raises(TaskEndedError):
        task.execute(context)
    assert not [name for name in files(emr) if name.endswith("payload.json")]


def test_a_job_run_that_is_refused_leaves_nothing_open(start, emr, store, connection):
    connection(execution_role_arn="arn:aws:iam::999999999999:role/other")
    task, context = start()
    with pytest.raises(ConfigurationError, match=r"job run: .*Cross-account pass role"):
        task.execute(context)
    (kept,) = store["hudi_write"]["attempts"]
    assert (kept["driver"], kept["end"], kept["log_read"]) == (None, "exit code 1", True)
    assert files(emr) == []
    connection()
    task, context = start(2)
    deferred(task.execute, context)


def test_a_clean_is_a_job_run_of_its_own_and_leaves_no_report(start, emr, folder, monkeypatch):
    begin = submitter.EmrServerless._start

    def begins(one, token):
        name = begin(one, token)
        submit = emr.requests[-1]["jobDriver"]["sparkSubmit"]
        given = json.loads(content(emr, submit["entryPointArguments"][-1]))
        assert given["arguments"] == [str(folder.parent)]
        key = given["report"]["url"].removeprefix(f"s3://{BUCKET}/")
        emr.client("s3").put_object(Bucket=BUCKET, Key=key, Body=f"{PROTECTED}{END}".encode())
        emr.job_runs[-1].state = "SUCCESS"
        return name

    monkeypatch.setattr(submitter.EmrServerless, "_start", begins)
    task, context = start()
    run = task._protected_run(context)
    code, _ = run_clean(run.spark, run.job, run.prepare(), str(folder.parent))
    assert code == 0
    identity = run.journal.record.identity
    assert emr.requests[-1]["name"].startswith(f"airflow_occ_{identity}-clean_")
    assert files(emr) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"properties_file": "/spark.conf"}, "properties_file: 'my_emr' is a connection of EMR"),
        ({"keytab": "/k"}, "keytab: .*execution role"),
        ({"principal": "p"}, "principal: "),
        ({"proxy_user": "p"}, "proxy_user: "),
        ({"yarn_queue": "q"}, "yarn_queue: "),
        ({"deploy_mode": "cluster"}, "deploy_mode: .*decides that itself"),
        ({"conf": {"spark.master": "yarn"}}, "conf spark.master: "),
        ({"application": "job.txt"}, "application: "),
        ({"application": "/a.jar", "java_class": "A"}, "application: .*jars or packages"),
    ],
)
def test_what_does_not_reach_a_driver_is_refused_before_it_is_queued(start, emr, given, named):
    task, context = start(**given)
    with pytest.raises(ConfigurationError, match=named):
        task.execute(context)
    assert not emr.requests


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"application_id": ""}, r"connection 'my_emr' service_config.emr-serverless.application_id"),
        ({"config": {"retryPolicy": {"maxAttempts": 2}}}, r"config\.retryPolicy: .*task's retries"),
        ({"config": {"mode": "STREAMING"}}, r"config\.mode: .*set it to BATCH"),
        ({"report_path": None}, r"report_path: .*not on S3.*add report_path to connection 'my_emr'"),
        ({"report_path": "gs://b/occ"}, r"report_path: gs://b/occ.* is not on S3"),
    ],
)
def test_a_connection_that_does_not_do_is_refused_before_the_task_is_queued(
    start, emr, connection, more, named
):
    connection(**more)
    task, context = start()
    with pytest.raises(ConfigurationError, match=named):
        task.execute(context)
    assert not emr.requests


def test_a_connection_of_aws_without_an_application_is_explained(start, emr, connection):
    connection(extra={"service_config": None})
    task, context = start()
    with pytest.raises(ConfigurationError, match=r"service_config\.emr-serverless"):
        task.execute(context)


def test_a_connection_without_a_region_is_explained(start, connection, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    connection(extra={"region_name": None})
    task, context = start()
    with pytest.raises(ConfigurationError, match=r"connection 'my_emr': .*region.*region_name in its"):
        task.execute(context)


def test_a_missing_provider_is_named_before_the_task_is_queued(start, monkeypatch):
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.emr", None)
    task, context = start()
    with pytest.raises(ConfigurationError, match=r"conn_id: 'my_emr'.*with its extra emr"):
        task.execute(context)


def test_the_arguments_of_spark_submit_become_properties(start, emr, connection):
    connection(log_uri="s3://logs/emr", config={"tags": {"a": "b"}})
    task, context = start(
        conf={"spark.a": True},
        files="s3://x/a, s3://x/b",
        jars="/usr/lib/hudi/hudi-spark-bundle.jar",
        packages="g:a:1",
        driver_memory="1g",
        num_executors=3,
        name="mine",
        env_vars={"A": "b"},
    )
    deferred(task.execute, context)
    (request,) = emr.requests
    (spark,) = request["configurationOverrides"]["applicationConfiguration"]
    assert spark["classification"] == "spark-defaults"
    assert spark["properties"] == {
        "spark.a": "true",
        "spark.app.name": "mine",
        "spark.driver.memory": "1g",
        "spark.emr-serverless.driverEnv.A": "b",
        "spark.executor.instances": "3",
        "spark.files": "s3://x/a, s3://x/b",
        "spark.jars": "/usr/lib/hudi/hudi-spark-bundle.jar",
        "spark.jars.packages": "g:a:1",
    }
    monitoring = request["configurationOverrides"]["monitoringConfiguration"]
    assert monitoring == {"s3MonitoringConfiguration": {"logUri": "s3://logs/emr"}}
    assert request["tags"] == {"a": "b"}


@pytest.mark.parametrize(
    ("table", "place", "storage_conn_id", "conn_id"),
    [
        ("s3a://lake/trips", "", "my_s3", "my_s3"),
        ("s3://lake/trips", "s3a://scratch/a", "my_s3", "my_s3"),
        ("s3a://lake/trips", "", None, "my_emr"),
        ("gs://lake/trips", "s3://scratch/a", "my_gcs", "my_emr"),
    ],
)
def test_what_lies_on_s3_is_opened_by_the_storages_connection_or_that_of_aws(
    connection, monkeypatch, table, place, storage_conn_id, conn_id
):
    connection(report_path=place)
    opened = []
    monkeypatch.setattr(staged, "storage_of", lambda url, conn_id: opened.append((url, conn_id)))
    drivers = staged.StagedDrivers(module.EmrService("my_emr"), table, storage_conn_id)
    url = drivers.folder("k").url
    drivers.follower(Flag()).open_report(f"{url}/1.jsonl")
    assert opened == [(url, conn_id), (f"{url}/1.jsonl", conn_id)]


def test_a_handle_is_enough_to_follow_a_job_run(start, emr):
    task, context = start()
    wait = deferred(task.execute, context)
    handle = Handle.from_json(wait.trigger.driver)
    assert follower(handle).poll(handle) == Running()
    assert service_of(handle) == "emr_serverless my_emr"


def test_every_call_has_a_time_out_and_the_users_own_go_first(connection, monkeypatch):
    given = module.EmrService("my_emr")._client.meta.config
    assert (given.connect_timeout, given.read_timeout) == (5, 40)
    assert given.retries["total_max_attempts"] == 3
    connection(extra={"config_kwargs": {"read_timeout": 7}})
    given = module.EmrService("my_emr")._client.meta.config
    assert (given.connect_timeout, given.read_timeout) == (5, 7)


def test_a_connection_of_spark_has_no_job_runs(start, monkeypatch):
    value = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_MY_EMR", json.dumps(value))
    task, context = start()
    run = SparkRun(task, context, Flag())
    assert (run.drivers, run.is_remote, run.deploy_mode) == (LocalDrivers(), False, None)


def test_the_emulator_refuses_what_would_run_a_driver_again(emr):
    """So that a request without these is seen."""
    with pytest.raises(ClientError, match="runs a driver only once"):
        emr.client().start_job_run(
            applicationId=emr.application,
            executionRoleArn=ROLE,
            clientToken="x",
            mode="BATCH",
            retryPolicy={"maxAttempts": 2},
        )


@pytest.mark.parametrize("given", [{"reads_table": True}, {"key_safe": True}])
def test_a_promise_that_needs_proven_ends_is_refused_before_it_is_queued(start, emr, queue, given):
    task, context = start(admission="queue", **given)
    with pytest.raises(ConfigurationError, match=r"key_safe, reads_table: .*proves_ends=False"):
        task.execute(context)
    assert not emr.requests
    assert not queue.stamps()
