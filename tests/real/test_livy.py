"""Real Livy, Spark, Hudi and ZooKeeper: a batch is protected, and its report says what it did."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.submitter import Ended, Handle, Unseen
from airflow_occ_provider.embedded.livy import EmbeddedLivy
from airflow_occ_provider.storage.report import RunFolder, open_report
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_batch import livy_batch
from tests.contract import livy_job
from tests.livy import LivyWriter, PlainHook
from tests.observed import processes_in
from tests.writers import commit_lock_held, inflight, wait_for

pytestmark = pytest.mark.real
CHECKED = '"message": "Successfully resolved conflicts, if any"'


@pytest.fixture(scope="module")
def livy(tmp_path_factory):
    with EmbeddedLivy(tmp_path_factory.mktemp("livy")) as one:
        yield one


@pytest.fixture
def hook(livy, monkeypatch):
    hooks = pytest.importorskip("airflow.providers.apache.livy.hooks.livy")
    monkeypatch.setenv("AIRFLOW_CONN_LIVY", json.dumps(livy.connection))
    return hooks.LivyHook(livy_conn_id="livy")


@pytest.fixture
def writer(hook, embedded_zookeeper, tmp_path):
    def make(*arguments, **given):
        return LivyWriter(hook, embedded_zookeeper.hosts, tmp_path / "t", arguments, **given)

    return make


def test_a_batch_writes_under_protection_and_reports_while_it_runs(writer, tmp_path, embedded_zookeeper):
    one = writer().start()
    log = one.attempt.recorder.log
    wait_for("the instant", lambda: inflight(tmp_path / "t"), one)
    with commit_lock_held(embedded_zookeeper.hosts):
        (instant,) = inflight(tmp_path / "t")
        wait_for("the instant in the report", lambda: instant in log.own_instants, one)
        assert log.protected
        assert one.attempt.driver.lives
        assert one.settlement is None
    settlement = one.wait()
    assert settlement.outcome is Outcome.COMMITTED, one.log
    assert settlement.instant == instant
    assert settlement.commit.metadata.extra["_airflow_identity"] == one.identity
    assert CHECKED in one.log
    (kept,) = one.store.record["attempts"]
    assert kept["log_read"] is True
    assert kept["instants"] == [instant]
    staged = Path(one.folder.url)
    assert [path.name for path in staged.iterdir()] == ["1.jsonl"]
    assert not list((tmp_path / "t").rglob("*.jsonl"))
    one.folder.remove()
    assert not staged.exists()


def test_a_job_that_is_not_protected_does_not_start(writer, tmp_path):
    one = writer(conf={"spark.hoodie.cleaner.policy.failed.writes": "EAGER"})
    settlement = one.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, one.log
    assert settlement.exit_code == 78
    assert "remove it, or set it to LAZY" in settlement.lines[0]
    assert not (tmp_path / "t").exists()


@pytest.mark.nightly
def test_the_exit_code_that_livy_does_not_tell_is_reported(writer, tmp_path):
    one = writer("--rows", "many")
    settlement = one.run()
    assert settlement.outcome is Outcome.JOB_ERROR, one.log
    assert settlement.exit_code == 2
    assert one.attempt.driver.log_read
    assert "invalid int value: 'many'" in one.log  # of the lines that Livy has kept


def test_a_kill_ends_all_of_the_driver_and_a_forgotten_batch_is_unseen(writer, hook, tmp_path):
    one = writer("--gate", str(tmp_path)).start()
    wait_for("the gate", (tmp_path / "w.begun").exists, one)
    kept = one.store.record["attempts"][0]["driver"]
    assert processes_in(tmp_path)
    one.submitter.killed.set()
    settlement = one.wait()
    assert settlement.outcome is Outcome.KILLED, one.log
    assert processes_in(tmp_path) == []
    handle = Handle.from_json(kept)
    assert isinstance(one.submitter.poll(handle), Ended)
    later = Livy(hook, open_report=open_report, is_on_server=True)
    assert isinstance(later.poll(handle), Unseen)
    assert later.find(one.identity) is None


@pytest.mark.nightly
def test_a_storage_that_refuses_the_report_does_not_stop_the_job(
    livy, embedded_zookeeper, tmp_path, monkeypatch
):
    one = LivyWriter(PlainHook(livy.url), embedded_zookeeper.hosts, tmp_path / "t", ("--write-nothing",))
    (tmp_path / "a file").touch()
    monkeypatch.setattr(
        type(one.folder), "report", lambda *_: f"{tmp_path}/a file/1.jsonl", raising=True
    )
    settlement = one.run()
    assert settlement.outcome is Outcome.NOTHING_WRITTEN, one.log
    (kept,) = one.store.record["attempts"]
    last = "".join(one.submitter.kept_lines(Handle.from_json(kept["driver"])))
    assert '"fact": "report_refused"' in last
    assert not kept.get("log_read")


def test_livy_is_on_loopback_only_and_leaves_nothing(tmp_path):
    """It is stopped while a batch runs, of a program that ends with its JVM."""
    begun, report = tmp_path / "begun", tmp_path / "report"
    with EmbeddedLivy(tmp_path / "livy") as one:
        script = f"touch {begun}; sleep 600"
        body = livy_batch(f"file://{livy_job.__file__}", [str(report), script])
        Livy(PlainHook(one.url), body).submit("k", lambda _: None)
        wait_for("the batch", begun.exists)
        servers = [one for one in processes_in(tmp_path) if "LivyServer" in " ".join(one.cmdline())]
        listening = [
            socket.laddr.ip.removeprefix("::ffff:")
            for process in servers
            for socket in process.net_connections()
            if socket.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert set(listening) == {"127.0.0.1"}
    assert processes_in(tmp_path) == []


class Mounted(LocalFileSystem):
    """The worker's view of what Hadoop's view file system mounts."""

    mounts: tuple[str, str]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace(*cls.mounts, 1))


@pytest.mark.nightly
def test_all_that_a_driver_needs_may_lie_on_a_file_system_of_hadoop(writer, tmp_path, monkeypatch):
    lake = tmp_path / "lake"
    lake.mkdir()
    monkeypatch.setattr(Mounted, "mounts", ("hdfs://lake/x", str(lake)), raising=False)
    folder = RunFolder("viewfs://lake/x/k", file_system=Mounted(skip_instance_cache=True))
    link = {"spark.hadoop.fs.viewfs.mounttable.lake.link./x": f"file://{lake}"}
    one = writer("--write-nothing", conf=link, folder=folder)
    settlement = one.run()
    assert settlement.outcome is Outcome.NOTHING_WRITTEN, one.log
    assert one.attempt.driver.log_read
    assert one.attempt.recorder.log.protected
    assert one.submitter.batch["file"] == "viewfs://lake/x/k/1/run_job.py"
    assert [path.name for path in (lake / "k").glob("[!.]*")] == ["1.jsonl"]  # Hadoop's checksum beside
