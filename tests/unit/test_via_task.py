"""A task whose drivers another operator starts, with drivers that follow the contract without Spark."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen
from airflow_occ_provider.driver.attempt import REQUEST_S, SILENCE_S
from airflow_occ_provider.driver.contract import answer_from_bytes
from airflow_occ_provider.errors import (
    CommitRefusedError,
    ConfigurationError,
    DriverKilledError,
    LeaseLostError,
    LockUnreachableError,
    NotSubmittedError,
    StateStoreError,
    TaskEndedError,
    WriteConflictError,
)
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.operators import task_run
from airflow_occ_provider.storage.attempt_folder import HIDDEN
from airflow_occ_provider.submitters import folder_driver, followed_driver
from airflow_occ_provider.submitters.place import Place, StartedPlace
from airflow_occ_provider.triggers import lease as lease_module
from airflow_occ_provider.triggers import lease as lease_trigger
from airflow_occ_provider.triggers.idle import HudiSurvivorTrigger
from tests.support.hand_made_tables import T1, C, add
from tests.support.task_state import Store
from tests.support.via_tasks import (
    LivyOperator,
    deferred,
    end,
    event_of,
    soon,  # noqa: F401 - a fixture of this module, too
    starter,
    the_driver,
)

PROTECTED = {"fact": "protected", "followed": True, "reports_end": True}
REQUESTED = {
    "fact": "hudi",
    "logger": "ActiveTimelineV2",
    "message": f"Creating a new instant [==>{T1}__commit__REQUESTED]",
}
CHECKED = {
    "fact": "hudi",
    "logger": "TransactionUtils",
    "message": "Successfully resolved conflicts, if any",
}
LOST = {
    "type": "org.apache.hudi.exception.HoodieWriteConflictException",
    "message": "Cannot resolve conflicts for overlapping writes",
    "jvm": True,
    "frames": [],
}


def tick(number):
    return {"fact": "tick", "number": number}


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, store, tmp_path):
    return starter(folder, store, tmp_path)


def resume(start, wait, event, number=1, **more):
    task, context = start(number, **more)
    return getattr(task, wait.method_name)(context, event)


def run_folder(folder, store):
    return folder.parent.parent / HIDDEN / "t" / store["hudi_write"]["identity"]


def commits(folder, store, *, is_certain=True):
    driver = the_driver()
    payload = json.loads(driver.ran)
    assert Path(payload["application"].removeprefix("file://")).read_text() == "print('mine')"
    assert payload["options"][IDENTITY_KEY] == store["hudi_write"]["identity"]
    add(folder, f"{T1}_{C}.commit", identity=store["hudi_write"]["identity"])
    driver.report(PROTECTED, REQUESTED, CHECKED, {**end(), "is_certain": is_certain})


def test_a_task_defers_while_its_driver_runs_and_finds_its_commit(start, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    commits(folder, store)
    event = event_of(wait.trigger)
    assert (event["status"], event["stop"]) == ("ended", None)
    assert resume(start, wait, event)["instant"] == T1
    assert len(LivyOperator.drivers) == 1
    assert not run_folder(folder, store).exists()
    (attempt,) = store["hudi_write"]["attempts"]
    assert (attempt["end"], attempt["log_read"], attempt["settled"]) == ("exit code 0", True, True)


def test_the_payload_reaches_no_place_but_its_driver(start, folder, store):
    task, context = start(hudi_options={"hoodie.x.password": "tiger"})
    wait = deferred(task.execute, context)
    the_driver()
    _, arguments = wait.trigger.serialize()
    assert "tiger" not in json.dumps([store["hudi_write"], arguments])
    assert not list(run_folder(folder, store).rglob("payload"))


def test_a_lost_conflict_is_read_and_the_next_try_runs_anew(start, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    the_driver().report(PROTECTED, REQUESTED, {"fact": "fatal", "causes": [LOST]}, end(1))
    with pytest.raises(WriteConflictError):
        resume(start, wait, event_of(wait.trigger))
    assert not run_folder(folder, store).exists()
    task, context = start(2)
    deferred(task.execute, context)
    assert len(LivyOperator.drivers) == 2
    assert the_driver().ran


def test_a_task_that_keeps_its_slot_follows_the_driver_itself(start, folder, store, monkeypatch):
    task, context = start(deferrable=False)
    read = folder_driver.FolderDriver.read

    def reads(submitter, handle, wait_s):
        if not LivyOperator.drivers[-1].facts:
            commits(folder, store)
        return read(submitter, handle, wait_s)

    monkeypatch.setattr(folder_driver.FolderDriver, "read", reads)
    assert task.execute(context)["instant"] == T1
    assert not run_folder(folder, store).exists()


def test_the_next_try_follows_a_driver_whose_worker_died(start):
    task, context = start()
    first = deferred(task.execute, context)
    task, context = start(2)
    again = deferred(task.execute, context)
    assert again.trigger.driver == first.trigger.driver
    assert len(LivyOperator.drivers) == 1


def test_a_driver_that_cannot_be_recorded_leaves_and_the_next_try_starts_another(
    start, store, monkeypatch
):
    keep = type(store).set

    def refuses(self, *arguments, **more):
        if LivyOperator.drivers:
            raise StateStoreError("this try is no longer the current one")
        keep(self, *arguments, **more)

    monkeypatch.setattr(type(store), "set", refuses)
    task, context = start()
    with pytest.raises(StateStoreError):
        task.execute(context)
    LivyOperator.drivers[0].join()
    assert LivyOperator.drivers[0].left == "the attempt was revoked"
    monkeypatch.setattr(type(store), "set", keep)
    task, context = start(2)
    deferred(task.execute, context)
    assert the_driver().ran


def test_ending_a_deferred_task_revokes_its_driver(start, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    driver = the_driver()
    ends = threading.Thread(target=ends_when_revoked, args=(driver,), daemon=True)
    ends.start()
    asyncio.run(wait.trigger.on_kill())
    ends.join(60)
    assert driver.is_revoked


def ends_when_revoked(driver):
    while not driver.is_revoked:
        time.sleep(0.01)
    driver.report(end(143))


def test_ending_a_task_that_follows_its_driver_revokes_it_and_tells_the_operator(start, monkeypatch):
    task, context = start(deferrable=False)
    read = folder_driver.FolderDriver.read

    def reads(submitter, handle, wait_s):
        driver = the_driver()
        task.on_kill()
        assert driver.is_revoked
        driver.report(end(143))
        return read(submitter, handle, wait_s)

    monkeypatch.setattr(folder_driver.FolderDriver, "read", reads)
    with pytest.raises(TaskEndedError):
        task.execute(context)
    assert LivyOperator.killed


def test_a_task_that_times_out_revokes_its_driver(start, monkeypatch):
    task, context = start(deferrable=False)

    def reads(*_):
        the_driver()
        raise AirflowTaskTimeout

    monkeypatch.setattr(folder_driver.FolderDriver, "read", reads)
    with pytest.raises(AirflowTaskTimeout):
        task.execute(context)
    assert the_driver().is_revoked


def test_nothing_is_left_of_a_driver_that_died_without_a_word(start, folder, store, monkeypatch):
    task, context = start()
    wait = deferred(task.execute, context)
    monkeypatch.setattr(folder_driver, "LIFE_S", 0.1)
    monkeypatch.setattr(followed_driver, "LIFE_S", 0.1)
    monkeypatch.setattr(Place, "request_s", 0.1)
    the_driver().report(PROTECTED, {"fact": "tick", "number": 1})
    with pytest.raises(DriverKilledError):
        resume(start, wait, event_of(wait.trigger))
    (attempt,) = store["hudi_write"]["attempts"]
    assert (attempt["end"], attempt["settled"]) == ("signal 9", False)


@pytest.fixture
def place_says(monkeypatch):
    """Has the place of the drivers say something of them, in the triggerer and on the worker."""
    return lambda state: monkeypatch.setattr(StartedPlace, "state", lambda *_: state)


def event_of_an_end(wait, monkeypatch):
    """The event of a trigger that saw an end, beside a task that would have to wait for it anew."""
    monkeypatch.setattr(Place, "request_s", 0.1)
    event = event_of(wait.trigger)
    assert event["status"] == "ended"
    monkeypatch.setattr(Place, "request_s", REQUEST_S)
    return event


@pytest.mark.parametrize("later", [Ended(137), Unseen("it has forgotten the driver")])
def test_an_end_by_the_places_word_counts_in_the_task_that_the_trigger_resumes(
    start, store, place_says, monkeypatch, later
):
    task, context = start()
    wait = deferred(task.execute, context)
    the_driver().report(PROTECTED, {"fact": "tick", "number": 1})
    place_says(Ended(137))
    event = event_of_an_end(wait, monkeypatch)
    place_says(later)
    with pytest.raises(DriverKilledError):
        resume(start, wait, event)
    (attempt,) = store["hudi_write"]["attempts"]
    assert attempt["end"] == ("exit code 137" if isinstance(later, Ended) else "signal 9")


def test_an_uncertain_end_counts_in_the_task_that_the_trigger_resumes(start, folder, store, monkeypatch):
    task, context = start()
    wait = deferred(task.execute, context)
    commits(folder, store, is_certain=False)
    assert resume(start, wait, event_of_an_end(wait, monkeypatch))["instant"] == T1


def test_a_driver_that_its_place_shows_after_all_is_followed_on(start, place_says, monkeypatch):
    task, context = start()
    wait = deferred(task.execute, context)
    the_driver().report(PROTECTED, {"fact": "tick", "number": 1})
    place_says(Ended(None))
    event = event_of_an_end(wait, monkeypatch)
    place_says(Running())
    assert deferred(resume, start, wait, event).trigger.driver == wait.trigger.driver


def test_an_operator_that_cannot_start_a_driver_fails_the_task_with_its_reason(start, folder, store):
    LivyOperator.error = RuntimeError("the cluster is full")
    task, context = start()
    with pytest.raises(NotSubmittedError, match="the cluster is full"):
        task.execute(context)
    LivyOperator.error = None
    task, context = start(2)
    deferred(task.execute, context)
    assert the_driver().ran


def test_a_table_at_the_root_of_its_storage_has_no_place_for_a_folder(start):
    task, context = start(table="/trips")
    with pytest.raises(ConfigurationError, match="root of its storage"):
        task.execute(context)


SERIALIZABLE = {"admission": "queue", "isolation": "serializable", "lock_conn_id": "lock"}
REFUSED = {
    "type": "java.io.IOException",
    "message": "airflow_occ_provider refused to complete file:/t/.hoodie/1.commit: the lease is over",
    "jvm": True,
    "frames": [],
}


@pytest.fixture
def triggerers_queue(queue, monkeypatch):
    """The queue as the triggerer reaches it."""
    hook = SimpleNamespace(leases=lambda: Queue(queue))
    monkeypatch.setattr(lease_module, "lock_hook", lambda _: hook)
    monkeypatch.setattr(lease_trigger, "_RETRY_S", 0.01)
    return queue


def answer(driver):
    life = driver.folder / "life"
    return answer_from_bytes(life.read_bytes()) if life.exists() else None


def happens(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def beside(call):
    """Run a call in a thread until the end of a block."""

    @contextlib.contextmanager
    def running():
        with ThreadPoolExecutor(1) as threads:
            ending = threads.submit(call)
            yield
            ending.result(60)

    return running()


def test_a_serializable_driver_is_guarded_and_lives_on_the_lease_of_its_trigger(
    start, folder, store, triggerers_queue
):
    task, context = start(**SERIALIZABLE)
    wait = deferred(task.execute, context)
    driver = the_driver()
    payload = json.loads(driver.ran)
    assert (payload["is_leased"], payload["ttl_s"]) == (True, 600)
    assert payload["guard"]["is_required"] is True
    driver.report(tick(1))

    def commits_once_answered():
        happens(lambda: answer(driver) == 1)
        driver.report(tick(2))
        happens(lambda: answer(driver) == 2)
        commits(folder, store)

    with beside(commits_once_answered):
        event = event_of(wait.trigger)
    assert event["is_leased"] is True
    assert resume(start, wait, event, **SERIALIZABLE)["instant"] == T1


def test_a_trigger_that_cannot_extend_the_lease_answers_no_tick(
    start, folder, triggerers_queue, monkeypatch
):
    task, context = start(**SERIALIZABLE)
    wait = deferred(task.execute, context)
    driver, refusals = the_driver(), []

    def away(self, ticket, ttl_ms=None):
        refusals.append(ttl_ms)
        raise LockUnreachableError("away", remedy="wait")

    monkeypatch.setattr(Queue, "renew", away)
    driver.report(tick(1))

    def ends_after_some_tries():
        happens(lambda: len(refusals) > 3)
        driver.report({"fact": "fatal", "causes": [REFUSED]}, end(1))

    with beside(ends_after_some_tries):
        event = event_of(wait.trigger)
    assert answer(driver) is None
    monkeypatch.undo()
    assert event["status"] == "ended"


def test_a_serializable_driver_lives_on_the_lease_of_its_worker(start, folder, store, monkeypatch):
    task, context = start(**SERIALIZABLE, deferrable=False)
    read, answers = folder_driver.FolderDriver.read, []

    def reads(submitter, handle, wait_s):
        driver = the_driver()
        if not driver.facts:
            driver.report(tick(1))
        answers.append(answer(driver))
        if answers[-1] == 1 and not driver.folder.joinpath("done").exists():
            driver.folder.joinpath("done").touch()
            commits(folder, store)
        return read(submitter, handle, wait_s)

    monkeypatch.setattr(folder_driver.FolderDriver, "read", reads)
    assert task.execute(context)["instant"] == T1
    assert answers[:2] == [None, None]  # the lease was extended before the tick was read


def test_a_refused_commit_is_an_outcome_that_a_retry_helps(start, monkeypatch):
    task, context = start(**SERIALIZABLE, deferrable=False)
    read = folder_driver.FolderDriver.read

    def reads(submitter, handle, wait_s):
        driver = the_driver()
        if not driver.facts:
            driver.report(PROTECTED, REQUESTED, {"fact": "fatal", "causes": [REFUSED]}, end(1))
        return read(submitter, handle, wait_s)

    monkeypatch.setattr(folder_driver.FolderDriver, "read", reads)
    with pytest.raises(CommitRefusedError, match="refused to complete") as caught:
        task.execute(context)
    assert (caught.value.retry, caught.value.committed) == (True, False)


def test_a_worker_whose_lease_is_lost_revokes_its_driver(start, queue, monkeypatch):
    task, context = start(**SERIALIZABLE, deferrable=False)
    read, line = folder_driver.FolderDriver.read, Queue(queue)

    def reads(submitter, handle, wait_s):
        driver = the_driver()
        if not driver.facts:
            assert line.evict(line.requests()[0])
            driver.report(tick(1))  # for which the lease is extended at once
        elif driver.is_revoked and len(driver.facts) == 1:
            driver.report(end(143))
        return read(submitter, handle, wait_s)

    monkeypatch.setattr(folder_driver.FolderDriver, "read", reads)
    with pytest.raises(LeaseLostError):
        task.execute(context)
    assert answer(the_driver()) is None


def test_a_lease_lasts_as_long_as_its_driver_was_told_whatever_the_connection_says_now(
    start, queue, monkeypatch
):
    task, context = start(**SERIALIZABLE)
    deferred(task.execute, context)
    driver, line = the_driver(), Queue(queue)
    assert json.loads(driver.ran)["ttl_s"] == 600
    hook = task_run.lock_hook("lock")
    monkeypatch.setattr(hook, "terms", lambda: Terms(60_000, 60_000))
    monkeypatch.setattr(task_run, "longest_absence_ms", lambda *_: 0)
    task, context = start(2, **SERIALIZABLE)
    again = deferred(task.execute, context)
    (queued,) = line.requests()
    content = Content.decode(queue.read([queued.name])[queued.name].data, queued.name)
    assert min(content.term_ms, again.trigger.claim_ttl_ms) >= 600_000


def test_a_driver_whose_lease_is_lost_is_revoked(start, triggerers_queue):
    task, context = start(**SERIALIZABLE)
    wait = deferred(task.execute, context)
    driver = the_driver()
    line = Queue(triggerers_queue)
    assert line.evict(line.requests()[0])

    with beside(lambda: ends_when_revoked(driver)):
        event = event_of(wait.trigger)
    assert event["stop"]["outcome"] == "killed"
    assert driver.is_revoked
    assert event["is_leased"] is False
    with pytest.raises(LeaseLostError):
        resume(start, wait, event, **SERIALIZABLE)


def test_an_earlier_driver_that_is_silent_is_waited_for_until_its_life_is_over(
    start, store, folder, monkeypatch
):
    monkeypatch.setattr(folder_driver, "_QUIET_S", -1.0)
    task, context = start()
    deferred(task.execute, context)
    driver = the_driver()
    driver.report(PROTECTED, {"fact": "tick", "number": 1})  # it has no instant, so no heartbeat either
    store["hudi_write"]["attempts"][0]["max_tries"] = 1  # the user has cleared the task
    task, context = start(2)
    wait = deferred(task.execute, context)
    assert isinstance(wait.trigger, HudiSurvivorTrigger)
    seconds = wait.trigger.until_ms / 1000 - time.time()
    assert SILENCE_S - 60 < seconds <= SILENCE_S
    assert driver.is_revoked
    assert len(LivyOperator.drivers) == 1
    for file in driver.folder.iterdir():
        written = file.stat().st_mtime - SILENCE_S - 1
        os.utime(file, (written, written))
    task, context = start(2)
    deferred(getattr(task, wait.method_name), context, {"status": "ended"})
    assert len(LivyOperator.drivers) == 2
    assert the_driver().ran
    first, _ = store["hudi_write"]["attempts"]
    assert (first["end"], first["settled"]) == ("found ended", True)
