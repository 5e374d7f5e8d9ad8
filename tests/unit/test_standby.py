"""A driver on standby: started by the next task in the queue, granted with its lease, else ended."""

from __future__ import annotations

import logging
import sys
import tempfile
from datetime import timedelta

import pytest

from airflow_occ_provider import standalone
from airflow_occ_provider.attempts.jobs import MainClass
from airflow_occ_provider.attempts.standby import Standby
from airflow_occ_provider.attempts.task_run import Measures
from airflow_occ_provider.attempts.write_spec import WritePolicy
from airflow_occ_provider.errors import AdmissionTimeoutError, LeaseLostError, NotSubmittedError
from airflow_occ_provider.in_driver import standby
from airflow_occ_provider.in_driver.folder import LocalFolder
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.retry import DEFAULT_BUDGETS, ConflictRetry
from airflow_occ_provider.standalone import (
    PlainLocks,
    Program,
    PythonFile,
    SparkSubmit,
    StorageLeases,
    StorageLock,
    WriteSpec,
)
from tests.support import stand_in_spark
from tests.support.observed import Beside, file_names, processes_in, until
from tests.support.stand_in import make_empty_table

STAND_IN = f'exec "{sys.executable}" "{stand_in_spark.__file__}" "$@"'


class Queued:
    """A program without retries whose table another writer holds."""

    def __init__(self, folder, script):
        self.table = folder / "lake" / "t"
        make_empty_table(self.table)
        (folder / "job.py").touch()
        submit = folder / "bin" / "spark-submit"
        submit.parent.mkdir()
        submit.write_text(f"#!/bin/sh\n{script}\n")
        submit.chmod(0o755)
        locks = PlainLocks(
            StorageLock(), StorageLeases(str(folder / "leases"), ttls=Terms(9000, 60_000), poll_s=1)
        )
        variables = {"SPARK_HOME": str(folder), "STAND_IN_TABLE": str(self.table)}
        self.program = Program(
            "trips",
            locks=locks,
            spark=SparkSubmit(binary=str(submit), environment=variables),
            journals=folder / "journals",
            rules=ConflictRetry(dict.fromkeys(DEFAULT_BUDGETS, 0)),
        )
        self.queue = locks.leases()
        self.holder = self.ask("holder")
        self._folder = folder

    def ask(self, run):
        owner = Owner((run, "1", "write"))
        return self.queue.request(Request(run, owner, (Scope.of(str(self.table), None),), 600_000))

    def write(self, **fields):
        fields = {"policy": WritePolicy(standby=True), **fields}
        job = fields.pop("job", PythonFile(f"{self._folder}/job.py"))
        return self.program.write(WriteSpec(str(self.table), job, **fields), "1")


@pytest.fixture
def queued(tmp_path, monkeypatch):
    """Return a function that makes a queued program; its `spark-submit` is a script."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    made, waits = [], []
    monkeypatch.setattr(standalone._Try, "measures", Measures(standby=waits.append))

    def queued(script=STAND_IN):
        made.append(Queued(tmp_path, script))
        made[-1].waits = waits
        return made[-1]

    yield queued
    for one in made:
        one.queue.close()
    assert list(scratch.iterdir()) == []
    assert processes_in(scratch) == []


def files(tmp_path):
    return file_names(tmp_path / "scratch")


def test_the_next_tasks_driver_waits_without_a_grant_and_commits_with_the_lease(
    queued, tmp_path, caplog
):
    caplog.set_level(logging.INFO)
    ours = queued()
    writing = Beside(ours.write)
    writing.until(lambda: "hello.stand_in" in files(tmp_path), "a driver on standby")
    assert {"grant", "payload"}.isdisjoint(files(tmp_path))
    assert "standby" in files(tmp_path)
    ours.queue.release(ours.holder)
    assert writing.result()["instant"]
    assert "the driver stood by for" in caplog.text
    assert len(ours.waits) == 1
    assert ours.queue.requests() == ()


def test_only_the_next_task_has_a_driver(queued, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    ours = queued()
    second = ours.ask("second")
    writing = Beside(ours.write)
    writing.until(lambda: "Blocked by 2 earlier requests" in caplog.text, "a place in the queue")
    assert "Next in the queue" not in caplog.text
    ours.queue.release(ours.holder)
    writing.until(lambda: "hello.stand_in" in files(tmp_path), "a driver on standby")
    ours.queue.release(second)
    assert writing.result()["instant"]


def test_a_request_that_is_lost_meanwhile_ends_the_driver(queued, tmp_path):
    ours = queued()
    writing = Beside(ours.write)
    writing.until(lambda: "hello.stand_in" in files(tmp_path), "a driver on standby")
    (lost,) = [other for other in ours.queue.requests() if other.request.id != "holder"]
    ours.queue.revoke(lost, "a person")
    with pytest.raises(LeaseLostError):
        writing.result()
    assert len(ours.waits) == 1


def test_a_lease_that_is_free_soon_is_seen_at_once(queued, tmp_path, monkeypatch):
    """The request is watched from the beginning, not after a period of renewals."""
    looks = []
    look_until = Standby.look_until
    ours = queued()

    def look(standby, changed, longest_s):
        looks.append(longest_s)
        until(lambda: "hello.stand_in" in files(tmp_path) or look_until(standby, changed, 0.1), "hello")
        ours.queue.release(ours.holder)
        assert changed.wait(100)

    monkeypatch.setattr(Standby, "look_until", look)
    assert ours.write()["instant"]
    assert len(looks) == 1


@pytest.mark.parametrize("step", ["asked to stop", "broken"])
def test_a_try_that_ends_between_lease_and_grant_runs_nothing(queued, tmp_path, monkeypatch, step):
    ours = queued()
    offered = Standby.offered

    def ends(standby, job, options):
        if step == "broken":
            offered(standby, job, options)
            raise OSError(step)
        standby._driver.submitter.killed.set()
        return offered(standby, job, options)

    monkeypatch.setattr(Standby, "offered", ends)
    writing = Beside(ours.write)
    writing.until(lambda: "hello.stand_in" in files(tmp_path), "a driver on standby")
    ours.queue.release(ours.holder)
    with pytest.raises((NotSubmittedError, OSError), match=step):
        writing.result()
    assert not list(ours.table.glob("p=1/*"))
    assert len(ours.waits) == 1


def test_by_default_no_driver_waits(queued, tmp_path):
    ours = queued()
    with pytest.raises(AdmissionTimeoutError):
        ours.write(policy=WritePolicy(), wait_timeout=timedelta(seconds=1))
    assert files(tmp_path) == set()


def test_a_wait_that_times_out_ends_the_driver_and_withdraws_the_request(queued, caplog):
    caplog.set_level(logging.INFO)
    ours = queued()
    with pytest.raises(AdmissionTimeoutError, match=r"not admitted within 0:00:03"):
        ours.write(wait_timeout=timedelta(seconds=3))
    assert "Next in the queue" in caplog.text
    assert len(ours.waits) == 1
    assert [queued.request.id for queued in ours.queue.requests()] == ["holder"]


def test_a_driver_that_cannot_be_started_fails_the_try_and_withdraws_the_request(queued):
    ours = queued("echo no such master >&2; exit 3")
    with pytest.raises(NotSubmittedError, match=r"exit code 3 before the job began") as failed:
        ours.write()
    assert "no such master" in failed.value.message
    assert [queued.request.id for queued in ours.queue.requests()] == ["holder"]


def test_a_driver_that_dies_on_standby_fails_the_try(queued):
    ours = queued("for folder; do :; done; echo {} >$folder/hello.stand_in; sleep 1; exit 4")
    with pytest.raises(NotSubmittedError, match="exit code 4"):
        ours.write()


def test_a_driver_is_told_of_its_standby_by_a_file(tmp_path):
    folder = LocalFolder(str(tmp_path))
    assert standby.read(folder) is None
    told = standby.WarmUp(9.0, {"spark.a": "b"})
    folder.write("standby", told.to_bytes())
    assert standby.read(folder) == told


def test_a_main_class_has_no_driver_on_standby(queued, caplog):
    caplog.set_level(logging.INFO)
    ours = queued()
    job = MainClass("a.Main", "")
    with pytest.raises(AdmissionTimeoutError):
        ours.write(job=job, wait_timeout=timedelta(seconds=1))
    assert "standby has no effect: a main class makes its own context" in caplog.text
