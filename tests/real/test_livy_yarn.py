"""Real Livy in front of a real YARN: a protected write, a kill, and a job that is not submitted."""

from __future__ import annotations

import json

import pytest

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running
from airflow_occ_provider.errors import NotSubmittedError
from airflow_occ_provider.submitters.livy_batch import livy_batch
from tests.livy import LivyServerOnYarn, PlainHook, YarnWriter, livy_on_yarn
from tests.observed import processes_in, until
from tests.writers import wait_for

pytestmark = [pytest.mark.real, pytest.mark.yarn, pytest.mark.nightly]
CHECKED = '"message": "Successfully resolved conflicts, if any"'
NOWHERE = PlainHook("http://127.0.0.1:1")


@pytest.fixture(scope="module")
def livy(embedded_yarn, tmp_path_factory):
    with LivyServerOnYarn(tmp_path_factory.mktemp("livy"), embedded_yarn) as one:
        yield one


@pytest.fixture
def hook(livy, monkeypatch):
    hooks = pytest.importorskip("airflow.providers.apache.livy.hooks.livy")
    monkeypatch.setenv("AIRFLOW_CONN_LIVY", json.dumps(livy.connection))
    return hooks.LivyHook(livy_conn_id="livy")


@pytest.fixture
def writer(hook, embedded_yarn, embedded_zookeeper, tmp_path):
    def make(*arguments):
        table = tmp_path / "t"
        return YarnWriter(hook, embedded_zookeeper.hosts, table, arguments, yarn=embedded_yarn)

    return make


def recorded(one):
    """The driver of the writer's attempt, once it is recorded with its application."""
    attempts = (one.store.record or {}).get("attempts", ())
    drivers = [attempt["driver"] for attempt in attempts if attempt["driver"]]
    return next((Handle.from_json(each) for each in drivers if "application" in each), None)


def test_a_batch_writes_under_protection_and_yarn_proves_its_end(writer, embedded_yarn, tmp_path):
    one = writer().start()
    wait_for("the application", lambda: recorded(one), one)
    handle = recorded(one)
    assert one.submitter.find(one.identity).facts["batch"] == handle.facts["batch"]
    settlement = one.wait()
    assert settlement.outcome is Outcome.COMMITTED, one.log
    assert settlement.commit.metadata.extra["_airflow_identity"] == one.identity
    assert CHECKED in one.log
    (kept,) = one.store.record["attempts"]
    assert (kept["end"], kept["log_read"], kept["instants"]) == (
        "exit code 0",
        True,
        [settlement.instant],
    )
    assert one.submitter.find(one.identity) is None
    later = livy_on_yarn(NOWHERE, embedded_yarn)
    assert later.poll(handle) == Ended(0)


def test_a_later_process_kills_a_batch_that_livy_does_not_show(writer, embedded_yarn, tmp_path):
    one = writer("--gate", str(tmp_path)).start()
    wait_for("the gate", (tmp_path / "w.begun").exists, one)
    handle = recorded(one)
    later = livy_on_yarn(NOWHERE, embedded_yarn)
    assert later.poll(handle) == Running()
    later.end(handle)
    until(lambda: later.poll(handle) == Ended(-9), "the end of the driver's container")
    settlement = one.wait()
    assert settlement.outcome is Outcome.KILLED, one.log
    assert processes_in(tmp_path) == []
    assert one.submitter.find(one.identity) is None


def test_a_batch_that_is_still_submitted_is_ended(hook, embedded_yarn, tmp_path):
    job = tmp_path / "job.py"
    job.write_text("import time\ntime.sleep(600)\n")
    one = livy_on_yarn(hook, embedded_yarn, batch=livy_batch(f"file://{job}", []))
    handle = one.livy.create("key-7", lambda name: {"conf": {"spark.yarn.tags": name}})
    assert one.poll(handle) == Running()
    one.end(handle)  # Livy waits for the application and kills it
    known = one._found(handle)
    assert known
    until(lambda: isinstance(one.poll(known), Ended), "the end of the application")


def test_what_spark_submit_refuses_is_named_with_its_lines(hook, embedded_yarn, tmp_path):
    batch = livy_batch(f"file://{tmp_path}/no-such-job.py", [])
    one = livy_on_yarn(hook, embedded_yarn, batch=batch, discard=lambda _: True)
    with pytest.raises(NotSubmittedError, match=r"no-such-job\.py"):
        one.submit("key-8", lambda _: None)
    assert one.find("key-8") is None
