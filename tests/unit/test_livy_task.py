"""A task whose connection is one of Livy, against a server with recorded answers, without Spark."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferred

from airflow_occ_provider.attempts.clean_run import run_clean
from airflow_occ_provider.attempts.identity import IDENTITY_KEY, Signature
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.site import ELSEWHERE
from airflow_occ_provider.attempts.staging import staged
from airflow_occ_provider.attempts.submission import SparkJob, prepared
from airflow_occ_provider.attempts.submitter import Handle, Running
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.errors import (
    ConfigurationError,
    DriverKilledError,
    SubmitterUnreachableError,
    TaskEndedError,
    WriteConflictError,
)
from airflow_occ_provider.hooks import livy as module
from airflow_occ_provider.hooks import staged as hook
from airflow_occ_provider.hooks.drivers import LocalDrivers
from airflow_occ_provider.hooks.submitters import follower
from airflow_occ_provider.in_driver import clean
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.spark_run import SparkRun
from airflow_occ_provider.storage.report import HIDDEN, RunFolder
from airflow_occ_provider.submitters import livy as submitter
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.spark_submit import Flag
from airflow_occ_provider.submitters.yarn.resource_manager import MANAGERS_FIELD
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers import driver as driver_trigger
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from tests.unit.test_livy import PROTECTED, RecordedLivy, fact, serving
from tests.unit.test_record import Store, Task
from tests.unit.test_table import T1, C, add

INTERVAL = {"hoodie.client.heartbeat.interval_in_ms": "60000"}
REQUESTED = fact(
    fact="hudi",
    logger="ActiveTimelineV2",
    message=f"Creating a new instant [==>{T1}__commit__REQUESTED]",
)
CHECKED = fact(fact="hudi", logger="TransactionUtils", message="Successfully resolved conflicts, if any")
END = fact(fact="end", exit_code=0)
LOST = {
    "type": "org.apache.hudi.exception.HoodieWriteConflictException",
    "message": "Cannot resolve conflicts for overlapping writes",
    "jvm": True,
    "frames": [],
}
CONFLICT = (PROTECTED, REQUESTED, fact(fact="fatal", causes=[LOST]), fact(fact="end", exit_code=1))


class Instance(Task):
    def xcom_push(self, **_):
        pass


class Write(HudiWriteOperator):
    """Decides no options; all else is the operator's."""

    def _protected_run(self, context):
        run = super()._protected_run(context)
        run.look_up = lambda: None

        def prepare(order_token="", *, starts=False):
            identity = run.journal.record.identity
            signature = Signature(identity, "d", "t", "r", order_token=order_token)
            return Preparation(signature, ELSEWHERE, {**INTERVAL, IDENTITY_KEY: identity}, "")

        def known_options(refuse):
            run.spark.refuse(run.job, ELSEWHERE)
            refuse(prepare())
            return dict(INTERVAL)

        run.prepare, run.known_options = prepare, known_options
        return run


def starter(conn_id, folder, store, tmp_path):
    """Return what makes one process of a task: the operator and its context."""
    job = tmp_path / "job.py"
    job.write_text("print('mine')")

    def start(number=1, **given):
        given = {"application": str(job), "table": str(folder.parent), "admission": "off", **given}
        context = {"ti": Instance(number, 14), "task_state_store": store}
        context["task"] = Write(task_id="t", conn_id=conn_id, **given)
        return context["task"], context

    return start


@contextlib.contextmanager
def quick_trigger(monkeypatch):
    """Have the trigger of a driver look at once, and often."""
    monkeypatch.setattr(base, "_NOTICE_S", -1000.0)
    monkeypatch.setattr(driver_trigger, "_POLL_S", 0.05)
    base.earliest_s.cache_clear()
    yield
    base.earliest_s.cache_clear()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(submitter, "_LOOK_S", 0.01)
    with quick_trigger(monkeypatch):
        yield


@pytest.fixture
def server():
    with serving(RecordedLivy()) as one:
        yield one


@pytest.fixture
def connection(server, monkeypatch):
    def make(**more):
        value = {"conn_type": "livy", "host": "127.0.0.1", "port": server.server_port, **more}
        monkeypatch.setenv("AIRFLOW_CONN_MY_LIVY", json.dumps(value))

    make()
    return make


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, connection, store, tmp_path):
    return starter("my_livy", folder, store, tmp_path)


def deferred(call, *arguments):
    with pytest.raises(TaskDeferred) as caught:
        call(*arguments)
    return caught.value


def event_of(trigger):
    path, arguments = trigger.serialize()
    assert path.endswith(".HudiDriverTrigger")
    again = HudiDriverTrigger(**json.loads(json.dumps(arguments)))

    async def first():
        return (await anext(again.run())).payload

    return asyncio.run(asyncio.wait_for(first(), 30))


def resume(start, wait, event, number=1):
    task, context = start(number)
    return getattr(task, wait.method_name)(context, event)


def run_folder(folder, store):
    return folder.parent.parent / HIDDEN / "t" / store["hudi_write"]["identity"]


def posted(server):
    return [body for method, body in server.requests if method == "POST"]


def runs(server, folder, *lines, state="success"):
    """What the batch does: it reads its input and writes its report."""
    (body, *_) = reversed(posted(server))
    given = json.loads(Path(body["args"][-1]).read_text())
    assert Path(given["application"]).read_text() == "print('mine')"
    assert Path(body["file"]).read_text().startswith('"""Runs a user')
    Path(given["report"]["url"]).write_text("".join(lines))
    server.batches[max(server.batches)]["state"] = state
    return given


def commits(server, folder, store):
    given = runs(server, folder, PROTECTED, REQUESTED, CHECKED, END)
    assert given["options"][IDENTITY_KEY] == store["hudi_write"]["identity"]
    add(folder, f"{T1}_{C}.commit", identity=store["hudi_write"]["identity"])


def test_a_task_defers_while_its_batch_runs_and_finds_its_commit(start, server, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    assert list(run_folder(folder, store).iterdir())  # the driver may not have read its input yet
    commits(server, folder, store)
    event = event_of(wait.trigger)
    assert (event["status"], event["stop"]) == ("ended", None)
    assert [kept[:2] for kept in event["facts"]["instants"]] == [[T1, "commit"]]
    assert resume(start, wait, event)["instant"] == T1
    assert len(posted(server)) == 1
    assert not run_folder(folder, store).exists()
    (kept,) = store["hudi_write"]["attempts"]
    assert (kept["end"], kept["log_read"], kept["settled"]) == ("exit code 0", True, True)


def test_the_report_serves_where_livy_has_forgotten_the_batch(start, server, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    commits(server, folder, store)
    event = event_of(wait.trigger)
    server.batches.clear()
    assert resume(start, wait, event)["instant"] == T1
    assert len(posted(server)) == 1


def test_a_lost_conflict_is_read_from_the_report_and_the_next_try_runs_anew(
    start, server, folder, store
):
    task, context = start()
    wait = deferred(task.execute, context)
    runs(server, folder, *CONFLICT, state="dead")
    with pytest.raises(WriteConflictError):
        resume(start, wait, event_of(wait.trigger))
    assert not run_folder(folder, store).exists()
    task, context = start(2)
    deferred(task.execute, context)
    assert len(posted(server)) == 2


def test_a_task_that_keeps_its_slot_follows_the_batch_itself(start, server, folder, store, monkeypatch):
    add_batch = server.add

    def added(*given, **more):
        batch = add_batch(*given, **more)
        commits(server, folder, store)
        return batch

    server.add = added
    task, context = start(deferrable=False)
    assert task.execute(context)["instant"] == T1
    assert not run_folder(folder, store).exists()


def test_the_next_try_follows_a_batch_whose_worker_died(start, server, folder, store):
    task, context = start()
    first = deferred(task.execute, context)
    task, context = start(2)
    again = deferred(task.execute, context)
    assert again.trigger.driver == first.trigger.driver
    assert len(posted(server)) == 1


def test_a_livy_that_is_away_makes_no_second_batch(start, server, monkeypatch):
    monkeypatch.setattr("airflow_occ_provider.submitters.livy_api._PAUSES_S", ())
    task, context = start()
    deferred(task.execute, context)
    server.broken = 99
    task, context = start(2)
    deferred(task.execute, context)
    assert len(posted(server)) == 1


def test_a_task_whose_livy_stays_away_fails_and_its_next_try_follows_the_batch(
    start, server, monkeypatch
):
    monkeypatch.setattr("airflow_occ_provider.submitters.livy_api._PAUSES_S", ())
    over = property(lambda self: self._since is not None)
    monkeypatch.setattr(Patience, "is_over", over)
    monkeypatch.setattr(driver_trigger, "_UNSEEN_S", 0.0)
    task, context = start()
    wait = deferred(task.execute, context)
    server.broken = 10_000
    event = event_of(wait.trigger)
    assert event["status"] == "unseen"
    with pytest.raises(SubmitterUnreachableError):
        resume(start, wait, event)
    server.broken = 0
    task, context = start(2)
    assert deferred(task.execute, context).trigger.driver == wait.trigger.driver
    assert len(posted(server)) == 1


def test_a_batch_that_was_not_recorded_is_found_with_its_report(start, server, folder, store):
    task, context = start()
    driver = deferred(task.execute, context).trigger.driver
    for attempt in store["hudi_write"]["attempts"]:
        attempt["driver"] = None
    task, context = start(2)
    assert deferred(task.execute, context).trigger.driver == driver


def test_ending_a_deferred_task_ends_its_batch_and_removes_its_input(start, server, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    assert list(run_folder(folder, store).rglob("payload.json"))
    asyncio.run(wait.trigger.on_kill())
    assert server.batches == {}
    assert not list(run_folder(folder, store).iterdir())


def test_nothing_is_left_of_a_driver_that_died_without_a_word(start, server, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    runs(server, folder, PROTECTED, state="dead")
    with pytest.raises(DriverKilledError):
        resume(start, wait, event_of(wait.trigger))
    (kept,) = store["hudi_write"]["attempts"]
    assert (kept["end"], kept["settled"]) == ("signal 9", False)
    assert not run_folder(folder, store).exists()


def interrupt(monkeypatch, interruption):
    """Have something happen to a task while it reads its driver's log."""
    read = submitter.Livy.read

    def reads(one, handle, wait_s):
        interruption()
        return read(one, handle, wait_s)

    monkeypatch.setattr(submitter.Livy, "read", reads)


def test_ending_a_task_that_follows_its_batch_ends_the_batch(start, server, folder, store, monkeypatch):
    task, context = start(deferrable=False)
    interrupt(monkeypatch, task.on_kill)
    with pytest.raises(TaskEndedError, match=r"^Ended by Airflow: .* Remedy: Nothing to do if the task"):
        task.execute(context)
    assert server.batches == {}
    assert not list(run_folder(folder, store).rglob("payload.json"))


def test_a_task_time_out_is_named_with_its_value(start, server, store, monkeypatch, capsys):
    def times_out():
        raise AirflowTaskTimeout("Timeout, PID: 1")

    task, context = start(deferrable=False, execution_timeout=timedelta(seconds=25))
    interrupt(monkeypatch, times_out)
    with pytest.raises(AirflowTaskTimeout):
        task.execute(context)
    assert server.batches == {}
    (kept,) = store["hudi_write"]["attempts"]
    assert kept["outcome"] == "timed_out"
    logged = capsys.readouterr().out
    assert "Timed out: the task's execution_timeout of 0:00:25 is over" in logged
    assert "Killed" not in logged


def test_a_batch_that_livy_refuses_leaves_nothing_open(start, server, folder, store):
    server.broken, server.breaks_alone = 1, "POST"
    server.error = (400, {"msg": "Blacklisted configuration values"})
    task, context = start()
    with pytest.raises(ConfigurationError, match="batch: Livy refuses it: Blacklisted"):
        task.execute(context)
    (kept,) = store["hudi_write"]["attempts"]
    assert (kept["driver"], kept["end"], kept["log_read"]) == (None, "exit code 1", True)
    assert not list(run_folder(folder, store).iterdir())
    task, context = start(2)
    deferred(task.execute, context)


def test_a_clean_is_a_batch_of_its_own_and_leaves_no_report(start, server, folder, monkeypatch):
    add_batch = server.add

    def added(*given, **more):
        batch = add_batch(*given, **more)
        (body,) = posted(server)
        given = json.loads(Path(body["args"][-1]).read_text())
        assert Path(given["application"]).read_text() == Path(clean.__file__).read_text()
        assert given["arguments"] == [str(folder.parent)]
        Path(given["report"]["url"]).write_text(PROTECTED + END)
        batch["state"] = "success"
        return batch

    server.add = added
    task, context = start()
    run = task._protected_run(context)
    code, _ = run_clean(run.spark, run.job, run.prepare(), str(folder.parent))
    assert code == 0
    (body,) = posted(server)
    assert body["name"].startswith(f"airflow_occ_{run.journal.record.identity}-clean_")
    assert not any((folder.parent.parent / HIDDEN / "t").iterdir())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"env_vars": {"A": "b"}}, "env_vars: Livy gives"),
        ({"properties_file": "/spark.conf"}, "properties_file: "),
        ({"keytab": "/k"}, "keytab: .*proxy_user"),
        ({"principal": "p"}, "principal: "),
        ({"conf": {"spark.submit.deployMode": "client"}}, "conf spark.submit.deployMode: Livy's own"),
        ({"conf": {"spark.yarn.maxAppAttempts": "2"}}, "conf spark.yarn.maxAppAttempts: "),
        ({"application": "job.txt"}, "application: "),
        ({"application": "/a.jar", "java_class": "A"}, "application: .*jars or packages"),
    ],
)
def test_what_does_not_reach_a_driver_is_refused_before_it_is_queued(start, server, given, named):
    task, context = start(**given)
    with pytest.raises(ConfigurationError, match=named):
        task.execute(context)
    assert not posted(server)


def test_a_deploy_mode_is_livys_own(start, server, connection):
    connection(extra={"deploy-mode": "cluster"})
    task, context = start()
    with pytest.raises(ConfigurationError, match="deploy_mode: Livy's own"):
        task.execute(context)
    assert not posted(server)


def test_an_address_that_sparks_hook_takes_for_kubernetes_is_explained(start, connection, monkeypatch):
    hooks = "airflow.providers.apache.spark.hooks.spark_submit"
    monkeypatch.setattr(f"{hooks}.kube_client", None, raising=False)
    connection(host="livy.k8s.internal")
    task, context = start()
    with pytest.raises(ConfigurationError, match=r"conn_id: .*my_livy.*cncf-kubernetes"):
        task.execute(context)


def test_a_missing_provider_is_named_before_the_task_is_queued(start, server, monkeypatch):
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.livy.hooks.livy", None)
    task, context = start()
    with pytest.raises(ConfigurationError, match=r"conn_id: 'my_livy'.*with its extra livy"):
        task.execute(context)


def test_the_arguments_of_spark_submit_become_those_of_a_batch(start, server):
    task, context = start(
        conf={"spark.a": True},
        files="a, b",
        jars="c",
        packages="g:a:1",
        driver_memory="1g",
        num_executors=3,
        yarn_queue="q",
        name="mine",
        total_executor_cores=4,
        driver_class_path="/site",
    )
    deferred(task.execute, context)
    (body,) = posted(server)
    assert (body["files"], body["jars"], body["queue"]) == (["a", "b"], ["c"], "q")
    assert (body["driverMemory"], body["numExecutors"]) == ("1g", 3)
    assert "pyFiles" not in body
    assert body["conf"] == {
        "spark.a": "true",
        "spark.app.name": "mine",
        "spark.cores.max": "4",
        "spark.driver.extraClassPath": "/site",
        "spark.driver.supervise": "false",
        "spark.jars.packages": "g:a:1",
        "spark.yarn.maxAppAttempts": "1",
    }


def test_a_connection_of_spark_has_no_batches(start, monkeypatch):
    value = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_MY_LIVY", json.dumps(value))
    task, context = start()
    run = SparkRun(task, context, Flag())
    assert (run.drivers, run.is_remote, run.deploy_mode) == (LocalDrivers(), False, None)


def test_what_a_killed_worker_left_of_a_drivers_input_is_removed(start, monkeypatch):
    value = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_MY_LIVY", json.dumps(value))
    task, context = start()
    run = SparkRun(task, context, Flag())
    with (
        prepared(SparkJob("job.py"), {IDENTITY_KEY: "mine"}, is_remote=True) as left,
        prepared(SparkJob("job.py"), {IDENTITY_KEY: "other"}, is_remote=True) as other,
    ):
        run.forget("mine")
        assert not Path(left.files[0]).exists()
        assert Path(other.files[0]).exists()


def test_input_and_report_go_where_the_connection_says(start, server, folder, connection, tmp_path):
    connection(extra={"report_path": str(tmp_path / "scratch")})
    task, context = start()
    deferred(task.execute, context)
    (body,) = posted(server)
    assert body["file"].startswith(f"{tmp_path}/scratch/")
    assert not (folder.parent.parent / HIDDEN).exists()


@pytest.mark.parametrize(
    ("table", "place", "conn_id"),
    [
        ("s3a://lake/trips", "", "my_aws"),
        ("s3a://lake/trips", "s3a://scratch/a", "my_aws"),
        ("s3a://lake/trips", "/mnt/scratch", None),
    ],
)
def test_the_storages_connection_opens_what_lies_on_that_storage(monkeypatch, table, place, conn_id):
    value = {"conn_type": "livy", "host": "h", "extra": {"report_path": place}}
    monkeypatch.setenv("AIRFLOW_CONN_MY_LIVY", json.dumps(value))
    opened = []
    monkeypatch.setattr(hook, "storage_of", lambda url, conn_id: opened.append((url, conn_id)))
    drivers = hook.StagedDrivers(module.LivyService("my_livy"), table, "my_aws")
    url = drivers.folder("k").url
    follower = drivers.follower(Flag())
    follower.open_report(f"{url}/1.jsonl")
    assert opened == [(url, conn_id), (f"{url}/1.jsonl", conn_id)]


def test_a_hook_looks_up_its_connection_when_it_is_made(connection, server, monkeypatch):
    hook = module.livy_hook("my_livy")
    monkeypatch.delenv("AIRFLOW_CONN_MY_LIVY")
    assert hook.run_method("/batches?from=0").status_code == 200


def test_what_a_connection_has_for_this_provider_is_no_header(monkeypatch):
    extra = {"report_path": "s3a://lake/x", MANAGERS_FIELD: "http://rm1:8088", "X-Requested-By": "me"}
    value = {"conn_type": "livy", "host": "h", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_MY_LIVY", json.dumps(value))
    headers = module.livy_hook("my_livy").get_conn().headers
    assert headers["X-Requested-By"] == "me"
    assert not {"report_path", MANAGERS_FIELD} & set(headers)


def test_a_handle_is_enough_to_follow_a_batch(start, server, connection):
    task, context = start()
    wait = deferred(task.execute, context)
    one = follower(Handle.from_json(wait.trigger.driver))
    assert one.poll(Handle.from_json(wait.trigger.driver)) == Running()
    assert one.traits.end_is_final


@pytest.mark.parametrize("waits", [True, False])
def test_the_input_stays_only_while_the_task_waits_for_the_driver(tmp_path, waits):
    job = tmp_path / "job.py"
    job.write_text("")
    folder = RunFolder(str(tmp_path / "f"))
    error = WaitNeeded(None) if waits else ValueError()
    with pytest.raises(type(error)):
        with_input(staged(SparkJob(str(job)), {}, folder, "1"), error)
    assert (tmp_path / "f" / "1" / "payload.json").exists() is waits


def with_input(input_of_driver, error):
    with input_of_driver as submission:
        assert Path(submission.arguments[-1]).exists()
        raise error
