"""A table made by hand, of timeline layout 2, a queue in memory, a site that needs no Airflow."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.operators import task_run
from airflow_occ_provider.operators.hudi_incremental_read import WINDOW_CONF
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers import base, commit, shared_watch
from tests.support.memory_store import MemoryStore
from tests.support.session_site import SITE
from tests.support.table_properties import table_properties
from tests.unit import scripted_spark

PROPERTIES = table_properties()


@pytest.fixture(autouse=True)
def site_without_airflow(monkeypatch):
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__SITE_ID", SITE)


@pytest.fixture
def folder(tmp_path):
    metadata = tmp_path / "t" / ".hoodie"
    (metadata / "timeline" / "history").mkdir(parents=True)
    (metadata / ".heartbeat").mkdir()
    (metadata / "hoodie.properties").write_text(PROPERTIES)
    return metadata


@pytest.fixture
def table(folder):
    return HudiTable(str(folder.parent))


@pytest.fixture
def queue(monkeypatch):
    """The queue's nodes, which each connection uses."""
    nodes = MemoryStore()
    terms = Terms(60_000, 600_000)
    hook = SimpleNamespace(
        lock_conn_id="lock", leases=lambda: Queue(nodes), terms=lambda: terms, options=lambda _: {}
    )
    monkeypatch.setattr(task_run, "lock_hook", lambda _: hook)
    return nodes


@pytest.fixture
def watching_at_once(monkeypatch):
    """Triggers that fire and confirm at once, and leave no watch behind."""
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(commit, "_CONFIRM_S", 0.01)
    yield
    assert shared_watch._watches == {}


class Output:
    """What was logged so far."""

    def __init__(self, capsys):
        self._capsys, self.text = capsys, ""

    def has(self, words, times=1):
        self.text += self._capsys.readouterr().out
        return self.text.count(words) >= times


@pytest.fixture
def output(capsys):
    return Output(capsys)


@pytest.fixture
def scripted(tmp_path, folder, queue, monkeypatch):
    """The drivers of a task run, as scripts that follow plans."""
    home = tmp_path / "spark"
    for name in ("bin", "conf"):
        (home / name).mkdir(parents=True)
    submit = home / "bin" / "spark-submit"
    submit.write_text(scripted_spark.SCRIPT)
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local"}))
    hook = SimpleNamespace(
        lock_conn_id="lock",
        leases=lambda: Queue(queue),
        terms=lambda: Terms(60_000, 600_000),
        options=lambda _: dict(scripted_spark.LOCK),
        validate=lambda: None,
        commit_lock=lambda *_: None,
    )
    monkeypatch.setattr(task_run, "lock_hook", lambda _: hook)
    return scripted_spark.ScriptedSpark(home, str(folder.parent))


@pytest.fixture
def jobs(monkeypatch):
    """The windows that jobs got; a job fails as often as it is told."""
    windows = []

    def execute(self, _):
        windows.append(json.loads(self.conf[WINDOW_CONF]))
        if failing := getattr(execute, "fails", 0):
            execute.fails = failing - 1
            raise RuntimeError("the job failed")

    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    found_execute = execute
    found_execute.fails = 0
    jobs.execute = execute
    return windows
