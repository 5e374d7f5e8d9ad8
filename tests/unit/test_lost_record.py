"""Drivers of a task run whose record is gone from Airflow's task state store."""

from __future__ import annotations

import os
import subprocess
from functools import partial

import pytest

from airflow_occ_provider.attempts.identity import Signature, new_identity, run_part
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import CommitStateUnknownError
from airflow_occ_provider.storage.attempt_folder import HIDDEN
from airflow_occ_provider.submitters import folder_driver
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.task_drivers import TaskDrivers
from airflow_occ_provider.triggers.idle import HudiSurvivorTrigger
from tests.support.local_drivers import local_drivers
from tests.support.session_site import SITE
from tests.support.task_state import Store
from tests.support.unrecorded_commits import commit
from tests.support.via_tasks import (
    LivyOperator,
    deferred,
    end,
    event_of,
    soon,  # noqa: F401 - a fixture of this module, too
    starter,
    the_driver,
)
from tests.unit.folder_drivers import FolderDriverOfTest


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, store, tmp_path):
    return starter(folder, store, tmp_path)


@pytest.fixture
def lost(start, store):
    """Returns a running driver of the first try, whose record is gone, and the wait for it."""

    def lost(**arguments):
        task, context = start(**arguments)
        wait = deferred(task.execute, context)
        lost.identity = store.pop("hudi_write")["identity"]
        return the_driver(), wait

    return lost


def attempts_beside(folder):
    """The folders of all attempts at the table."""
    return sorted((folder.parent.parent / HIDDEN / "t").glob("*/*"))


def ends_when_revoked(monkeypatch, driver, before=lambda: None):
    """Have a driver report its end once it is revoked, as a real one does."""
    look = FolderDriver.end

    def revoked(submitter, handle):
        look(submitter, handle)
        if handle.facts["nonce"] == driver.nonce and driver.is_revoked and not driver.facts:
            before()
            driver.report(end(143))

    monkeypatch.setattr(FolderDriver, "end", revoked)


def test_it_is_revoked_and_has_ended_before_another_one_starts(start, folder, lost, monkeypatch):
    first, _ = lost()
    beside = []
    ends_when_revoked(monkeypatch, first, lambda: beside.extend(LivyOperator.drivers[1:]))
    task, context = start(2)
    deferred(task.execute, context)
    assert (first.is_revoked, beside) == (True, [])
    assert len(LivyOperator.drivers) == 2
    assert the_driver().ran


def test_nothing_runs_beside_it_while_its_end_is_not_proven(start, store, lost, monkeypatch):
    monkeypatch.setattr(folder_driver, "_QUIET_S", -1.0)
    first, _ = lost()
    for _ in range(2):  # the try after that looks again, and waits for the same driver
        task, context = start(2)
        wait = deferred(task.execute, context)
        assert isinstance(wait.trigger, HudiSurvivorTrigger)
        assert first.is_revoked
        (attempt,) = store["hudi_write"]["attempts"]
        assert (attempt["driver"]["nonce"], attempt["settled"]) == (first.nonce, False)
    assert LivyOperator.drivers == [first]
    first.report(end(143))
    task, context = start(2)
    deferred(task.resume_execution, wait.method_name, {"event": {"status": "over"}}, context)
    assert len(LivyOperator.drivers) == 2
    assert the_driver().ran


@pytest.mark.parametrize("number", [1, 2], ids=["the same try, continued", "the next try"])
def test_its_commit_is_found_however_late_it_lands(start, folder, lost, monkeypatch, number):
    first, wait = lost()
    signature = Signature(lost.identity, "d", "t", "r")
    ends_when_revoked(monkeypatch, first, lambda: commit(folder, signature))
    task, context = start(number)
    event = {"event": {"status": "unseen", "reason": "the storage was away"}}
    again = partial(task.resume_execution, wait.method_name, event) if number == 1 else task.execute
    with pytest.raises(CommitStateUnknownError, match="Airflow has no record of it"):
        again(context)
    assert LivyOperator.drivers == [first]


def test_a_task_that_resumes_without_its_record_does_not_write_again(start, folder, lost):
    first, wait = lost()
    commit(folder, Signature(lost.identity, "d", "t", "r"))
    first.report(end())
    task, context = start()
    with pytest.raises(CommitStateUnknownError, match="Airflow has no record of it"):
        task.resume_execution(wait.method_name, {"event": event_of(wait.trigger)}, context)
    assert LivyOperator.drivers == [first]


def test_one_that_waits_for_its_grant_leaves(start, folder, lost, monkeypatch):
    first, _ = lost()
    first.report(end())
    (attempt,) = attempts_beside(folder)
    second = FolderDriverOfTest(attempt.parent / "second", "waits")
    second.folder.mkdir()
    second.start()
    task, context = start(2)
    deferred(task.execute, context)
    second.join()
    assert (second.ran, second.left) == (None, "the attempt was revoked")
    assert len(LivyOperator.drivers) == 2


def test_its_folder_goes_with_those_of_the_run(start, folder, lost, store):
    first, _ = lost()
    first.report(end())
    task, context = start(2)
    wait = deferred(task.execute, context)
    commit(folder, Signature(store["hudi_write"]["identity"], "d", "t", "r"))
    the_driver().report({"fact": "protected", "followed": True, "reports_end": True}, end())
    task, context = start(2)
    task.resume_execution(wait.method_name, {"event": event_of(wait.trigger)}, context)
    assert attempts_beside(folder) == []


def test_drivers_of_other_runs_stay(start, folder, lost):
    first, _ = lost()
    first.report(end())
    (attempt,) = attempts_beside(folder)
    other = attempt.parent.parent / "0a0a0a0a-0a0a-8a0a-8a0a-0a0a0a0a0a0a" / "1"
    other.mkdir(parents=True)
    (other / "hello.x").write_bytes(Hello("x").to_bytes())
    task, context = start(2)
    deferred(task.execute, context)
    assert [file.name for file in other.iterdir()] == ["hello.x"]


def test_the_first_process_of_a_first_try_looks_for_nothing(start, folder, monkeypatch):
    looks = []
    monkeypatch.setattr(TaskDrivers, "revoke_unrecorded", lambda *_: looks.append(1) or {})
    task, context = start()
    deferred(task.execute, context)
    task, context = start(2)
    deferred(task.execute, context)  # it follows the driver that the record names
    assert (len(LivyOperator.drivers), looks) == (1, [])


def test_a_process_of_this_host_is_ended():
    identities = [new_identity((SITE, "d", run, "t", "-1")) for run in ("mine", "mine", "other")]
    sleepers = [
        subprocess.Popen(["sleep", "600"], env={**os.environ, IDENTITY_VARIABLE: identity})
        for identity in identities
    ]
    try:
        assert (
            local_drivers().revoke_unrecorded(run_part(new_identity((SITE, "d", "mine", "t", "-1"))), 60)
            == {}
        )
        assert [sleeper.poll() is None for sleeper in sleepers] == [False, False, True]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
