"""Real Spark, Hudi and ZooKeeper: drivers that another operator of Airflow starts."""

from __future__ import annotations

import json

import pytest
from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.providers.standard.operators.bash import BashOperator

from airflow_occ_provider.errors import DriverKilledError, OccError
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.via import ARGUMENTS, RUNNER
from tests.services.livy import EmbeddedLivy
from tests.support.observed import processes_in, until
from tests.support.session_site import SITE
from tests.support.via_runs import instants, raced, write_and_end, write_run

pytestmark = pytest.mark.real
SUBMIT = f"spark-submit --master 'local[2]' --driver-memory 1g {RUNNER} {ARGUMENTS}"


@pytest.fixture
def table(tmp_path):
    """A table that does not exist yet, in a folder of its own."""
    return tmp_path / "lake" / "t"


@pytest.fixture
def run(hudi_stack, monkeypatch, table):
    """Return a function that makes the run of a task that writes one table."""
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(hudi_stack.lock_connection))
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__SITE_ID", SITE)
    by_bash = {"bash_command": SUBMIT, "env": dict(hudi_stack.environment)}

    def run(name, *arguments, via=BashOperator, via_kwargs=by_bash):
        return write_run(name, table, *arguments, via=via, via_kwargs=via_kwargs)

    return run


def test_a_command_writes_under_protection_and_is_ended_with_its_task(run, table, tmp_path):
    write_and_end(run, table, tmp_path, lambda: processes_in(table.parent))


@pytest.mark.nightly
def test_the_end_of_a_killed_command_is_known_without_its_silence(run, table, tmp_path, monkeypatch):
    monkeypatch.setattr(Place, "request_s", 5.0)
    killed = run("killed", "--gate", str(tmp_path)).start()
    killed.reached(tmp_path / "killed.begun")
    for process in processes_in(table.parent):
        process.kill()
    assert isinstance(killed.wait().error, DriverKilledError)


@pytest.mark.nightly
def test_a_writer_that_loses_is_retried(run, table, tmp_path):
    first, winner, loser = raced(run, tmp_path)
    again = loser.start().committed()
    assert instants(table) == [first, winner.committed(), again]


@pytest.mark.nightly
def test_a_batch_of_livy_writes_and_loses_as_a_command_does(run, monkeypatch, table, tmp_path):
    with EmbeddedLivy(tmp_path / "livy") as livy:
        monkeypatch.setenv("AIRFLOW_CONN_LIVY", json.dumps(livy.connection))
        kwargs = {"livy_conn_id": "livy", "file": RUNNER, "args": [ARGUMENTS], "driver_memory": "1g"}
        committed = run("first", via=LivyOperator, via_kwargs=kwargs).start().committed()
        killed = run("killed", "--gate", str(tmp_path), via=LivyOperator, via_kwargs=kwargs).start()
        killed.reached(tmp_path / "killed.begun")
        killed.task.on_kill()
        assert isinstance(killed.wait().error, OccError)
        until(lambda: not processes_in(table.parent), "the end of the batch")
    assert instants(table) == [committed]
