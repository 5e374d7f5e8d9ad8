"""The attempt's side of the contract, against drivers that follow it in files of a real folder."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.driver import TICK_S
from airflow_occ_provider.attempts.submission import SparkJob, Submission, offered
from airflow_occ_provider.attempts.submitter import SILENCE_FACT, Ended, Handle, Running, Unseen
from airflow_occ_provider.driver import attempt as attempt_half
from airflow_occ_provider.driver import contract
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import (
    ConfigurationError,
    FenceError,
    NotSubmittedError,
    StateStoreError,
    SubmitterUnreachableError,
    TableUnreadableError,
)
from airflow_occ_provider.in_driver.report import Lines
from airflow_occ_provider.storage.attempt_folder import AttemptFolder, run_folder
from airflow_occ_provider.submitters import folder_driver, followed_driver, processes
from airflow_occ_provider.submitters import folder_driver as folder_driver_module
from airflow_occ_provider.submitters import followed_driver as followed_driver_module
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.followed_driver import Patience
from airflow_occ_provider.submitters.place import Place
from tests.support.patched import only_in
from tests.unit.folder_drivers import FolderDriverOfTest

PAYLOAD = b'{"job": 1}'
PERIODS = followed_driver._PERIODS
HOUR = timedelta(hours=1)


class Service(Place):
    """Starts drivers, as many as it was given; what it says of them is set."""

    name, period_s = "service", 0.0

    def __init__(self, *drivers, error=None):
        self.drivers, self.error, self.calls = drivers, error, []
        self.ended, self.says, self.lines = False, Unseen("it does not tell"), []
        self.has_started = threading.Event()

    def start(self, runner, arguments):
        self.calls.append((runner, *arguments))
        for driver in self.drivers:
            driver.start()
        self.has_started.set()
        if self.error:
            raise self.error

    def identify(self, hello):
        return f"job of {hello.nonce}", {"job": 7}

    def state(self, handle):
        assert handle.facts.get("job", 7) == 7
        return self.says

    def kill(self, handle):
        self.ended = True

    def output(self, wait_s):
        lines, self.lines = self.lines, []
        return lines

    def join(self):
        assert self.has_started.wait(30), "a driver that waits already may be granted before"
        for driver in self.drivers:
            driver.join()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(folder_driver_module, "_GATE_S", 0.01)
    monkeypatch.setattr(folder_driver, "_END_S", 0.05)
    monkeypatch.setattr(followed_driver, "_PERIODS", ((1e9, 0.0),))


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "attempt"
    path.mkdir()
    return path


def clock_of(monkeypatch, now_s):
    for module in (folder_driver, followed_driver):
        only_in(monkeypatch, module, "time", monotonic=now_s)


def opened(url):
    return AttemptFolder(str(url))


def offering(folder, service):
    offer = Submission("runner.py", opened(folder), PAYLOAD)
    return FolderDriver(opened, service, offer, {"storage_conn_id": None})


def granted(folder, *, nonce="n1"):
    """A driver that was granted, and the submitter and handle of its attempt."""
    driver = FolderDriverOfTest(folder, nonce)
    service = Service(driver)
    submitter = offering(folder, service)
    handle = submitter.submit(lambda _: None)
    service.join()
    return driver, submitter, handle


def follower():
    return FolderDriver(opened, Service())


def test_a_driver_runs_once_it_is_recorded(folder):
    driver, recorded = FolderDriverOfTest(folder, "n1"), []
    service = Service(driver)

    def started(handle):
        recorded.append((handle, driver.ran, (folder / "grant").exists(), (folder / "payload").exists()))

    handle = offering(folder, service).submit(started)
    service.join()
    assert driver.ran == PAYLOAD
    assert recorded == [(handle, None, False, True)]
    assert Handle.from_json(json.loads(json.dumps(handle.to_json()))) == handle
    assert service.calls == [("runner.py", str(folder))]
    assert not (folder / "payload").exists()


def test_of_two_drivers_of_an_attempt_one_runs_and_the_other_leaves(folder):
    drivers = [FolderDriverOfTest(folder, "n1"), FolderDriverOfTest(folder, "n2")]
    service = Service(*drivers)
    offering(folder, service).submit(lambda _: None)
    service.join()
    assert [driver.ran for driver in drivers].count(PAYLOAD) == 1
    (runs,) = [driver.nonce for driver in drivers if driver.ran]
    assert [driver.left for driver in drivers if not driver.ran] == [
        f"driver {runs} of the same attempt was granted"
    ]


def test_a_driver_that_cannot_be_recorded_leaves(folder):
    driver = FolderDriverOfTest(folder, "n1")
    service = Service(driver)

    def started(_):
        raise StateStoreError("this try is no longer the current one")

    with pytest.raises(StateStoreError):
        offering(folder, service).submit(started)
    service.join()
    assert driver.ran is None
    assert driver.left == "the attempt was revoked"


def test_a_start_that_fails_before_a_driver_waits_is_an_error_with_its_reason(folder):
    with pytest.raises(NotSubmittedError, match="quota exceeded"):
        offering(folder, Service(error=RuntimeError("quota exceeded"))).submit(lambda _: None)
    assert (folder / "revoked").exists(), "a driver that comes late leaves"


def test_a_start_that_fails_after_a_driver_waits_changes_nothing(folder):
    driver = FolderDriverOfTest(folder, "n1")
    (folder / "hello.n1").write_bytes(Hello("n1").to_bytes())
    service = Service(driver, error=RuntimeError("the waiter timed out"))
    assert offering(folder, service).submit(lambda _: None)
    service.join()
    assert driver.ran == PAYLOAD


def test_a_file_that_a_store_is_still_writing_is_no_driver(folder):
    driver = FolderDriverOfTest(folder, "n1")
    for name in ("n1-26b255e2-82bb-4a3f-bd96-00686f9e74e5", "n1.tmp", "n1~", "n1._COPYING_", ""):
        (folder / f"hello.{name}").write_bytes(b"")
    service = Service(driver)
    assert offering(folder, service).submit(lambda _: None)
    service.join()
    assert driver.ran == PAYLOAD


class Clock:
    """A clock that sleeping advances, and nothing else."""

    def __init__(self, wake=lambda _: None):
        self.now_s, self.begun_s, self.wake = time.monotonic(), time.monotonic(), wake

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds
        self.wake(self.now_s - self.begun_s)


class EmptyFolder:
    """A folder to which no driver comes; it notes when it was listed."""

    url, stale_s = "folder", 0.0

    def __init__(self, clock):
        self.clock, self.listed_s = clock, []

    def entries(self):
        self.listed_s.append(self.clock.now_s - self.clock.begun_s)
        return {}

    def write(self, name, content):
        assert name == "revoked"


def test_the_longer_a_driver_is_waited_for_the_rarer_are_the_looks(monkeypatch):
    monkeypatch.setattr(folder_driver_module, "_GATE_S", 0.3)
    monkeypatch.setattr(folder_driver_module, "time", clock := Clock())
    folder = EmptyFolder(clock)
    offer = Submission("runner.py", folder, PAYLOAD)
    with pytest.raises(NotSubmittedError, match="the job has not begun within"):
        FolderDriver(opened, Service(), offer, start_limit=HOUR).submit(lambda _: None)
    pauses_s = [
        (begun_s, later_s - begun_s)
        for begun_s, later_s in zip(folder.listed_s, folder.listed_s[1:], strict=False)
    ]
    assert max(pause_s for begun_s, pause_s in pauses_s if begun_s < 59) == pytest.approx(0.3)
    assert all(pause_s < 0.1 * begun_s for begun_s, pause_s in pauses_s if begun_s > 59)
    assert min(pause_s for begun_s, pause_s in pauses_s if begun_s > 301) == pytest.approx(5.0)
    assert len(folder.listed_s) < 1000


@pytest.mark.parametrize("reason", ["the task was asked to stop", "the start failed"])
def test_a_rare_look_does_not_delay_what_ends_the_wait(monkeypatch, reason):
    def wake(waited_s):
        if waited_s < 1201:  # within a pause of five seconds
            return
        if reason == "the start failed":
            driver._start.error = NotSubmittedError(reason, remedy="start it again")
        else:
            driver.killed.set()

    monkeypatch.setattr(folder_driver_module, "_GATE_S", 0.3)
    monkeypatch.setattr(folder_driver_module, "time", clock := Clock(wake))
    offer = Submission("runner.py", EmptyFolder(clock), PAYLOAD)
    driver = FolderDriver(opened, Service(), offer, start_limit=HOUR)
    with pytest.raises(NotSubmittedError, match=reason):
        driver.submit(lambda _: None)
    assert clock.now_s - clock.begun_s < 1202


def test_a_driver_that_does_not_come_is_waited_for_no_longer_than_its_limit(folder):
    submitter = offering(folder, Service())
    submitter.start_limit = timedelta(milliseconds=50)
    with pytest.raises(NotSubmittedError, match="start_timeout"):
        submitter.submit(lambda _: None)
    assert (folder / "revoked").exists()


def test_an_operator_that_waits_and_has_returned_without_a_driver_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(folder_driver_module, "_COMES_S", 0.05)
    service = Service()
    service.waits = True
    with pytest.raises(NotSubmittedError, match="no driver of it is in the attempt's folder"):
        offering(folder, service).submit(lambda _: None)


def test_a_task_that_is_ended_does_not_wait_for_a_driver(folder):
    submitter = offering(folder, Service())
    submitter.killed.set()
    with pytest.raises(NotSubmittedError, match="asked to stop"):
        submitter.submit(lambda _: None)


def test_a_driver_on_standby_runs_what_is_offered_last(folder):
    driver = FolderDriverOfTest(folder, "n1")
    service = Service(driver)
    service.lines = ["warming up\n"]
    submitter, printed = offering(folder, service), []
    for _ in range(3):
        submitter.stand_by(printed.append)
    assert service.has_started.wait(30)
    assert printed == ["warming up\n"]
    assert len(service.calls) == 1
    assert not (folder / "grant").exists()
    submitter.offer(b'{"job": 2}', 30.0)
    handle = submitter.submit(lambda _: None)
    service.join()
    assert len(service.calls) == 1
    assert handle.facts["payload"] == contract.digest(b'{"job": 2}')
    assert handle.facts["lease_ttl_s"] == 30.0


def test_a_task_that_is_ended_has_no_driver_on_standby(folder):
    service = Service()
    submitter = offering(folder, service)
    submitter.give_up()
    assert not service.ended
    assert not (folder / "revoked").exists()
    submitter.stand_by(lambda _: None)
    submitter.killed.set()
    with pytest.raises(NotSubmittedError, match="asked to stop"):
        submitter.stand_by(lambda _: None)
    submitter.give_up()
    assert service.ended
    assert (folder / "revoked").exists()


def test_facts_are_returned_once_and_the_end_last(folder):
    driver, submitter, handle = granted(folder)
    assert submitter.read(handle, 0) == []
    assert submitter.poll(handle) == Running()
    driver.report({"fact": "protected"}, {"fact": "tick", "number": 1})
    assert submitter.read(handle, 0) == [{"fact": "protected"}]
    assert contract.answer_from_bytes((folder / "life").read_bytes()) == 1
    end = {"fact": "end", "exit_code": 3, "committed": ["T1"], "is_certain": True}
    driver.report({"fact": "hudi"}, end)
    *facts, evidence = submitter.read(handle, 0)
    assert facts == [{"fact": "hudi"}, end]
    assert evidence == "driver n1 reported its end; commits: T1.\n"
    assert submitter.read(handle, 0) is None
    assert submitter.poll(handle) == Ended(3)


def test_an_uncertain_end_is_one_once_a_request_cannot_be_under_way(folder, monkeypatch):
    driver, submitter, handle = granted(folder)
    now = [time.monotonic()]
    clock_of(monkeypatch, lambda: now[0])
    driver.report({"fact": "end", "exit_code": 0, "is_certain": False})
    assert submitter.poll(handle) == Running()
    now[0] += attempt_half.REQUEST_S + 1
    assert submitter.poll(handle) == Ended(0)


def test_facts_that_a_long_file_no_longer_has_are_missed(folder):
    driver, submitter, handle = granted(folder)
    driver.report({"fact": "protected"}, {"fact": "left_out", "lines": 2}, {"fact": "hudi"})
    missing = {"fact": "left_out", "lines": 2}
    assert submitter.read(handle, 0) == [{"fact": "protected"}, missing, {"fact": "hudi"}]
    driver.report({"fact": "end", "exit_code": 0, "is_certain": True})
    submitter.read(handle, 0)
    assert submitter.poll(handle) == Ended(0, log_is_whole=False)


def test_what_was_left_out_after_it_was_read_is_not_missed(folder, monkeypatch):
    monkeypatch.setattr(followed_driver, "FIXED_FACTS", 0)  # so short a file is never cut
    driver, submitter, handle = granted(folder)
    driver.report(*({"fact": "hudi", "message": number} for number in range(4)))
    assert len(submitter.read(handle, 0)) == 4
    driver.facts = [driver.facts[0], {"fact": "left_out", "lines": 2}, driver.facts[3]]
    driver.report({"fact": "end", "exit_code": 0, "is_certain": True})
    first, _ = submitter.read(handle, 0)
    assert first["fact"] == "end"
    assert submitter.poll(handle) == Ended(0)


def test_another_process_follows_and_ends_the_driver(folder):
    driver, _, handle = granted(folder)
    driver.report({"fact": "protected"})
    later = follower()
    assert later.read(handle, 0) == [{"fact": "protected"}]
    later.end(handle)
    assert (folder / "revoked").exists()
    driver.report({"fact": "end", "exit_code": 143, "is_certain": True})
    assert later.poll(handle) == Ended(143)


def test_a_process_that_follows_completes_the_grant_and_one_that_looks_does_not(folder):
    driver = FolderDriverOfTest(folder, "n1")
    (folder / "payload").write_bytes(PAYLOAD)
    facts = {"folder": str(folder), "nonce": "n1", "payload": contract.digest(PAYLOAD)}
    handle = Handle("via", "driver n1", facts)
    assert follower().poll(handle) == Running()
    assert not (folder / "grant").exists()
    follower().read(handle, 0)
    driver.wait()
    assert driver.ran == PAYLOAD


def test_a_revoked_driver_is_not_answered(folder):
    driver, submitter, handle = granted(folder)
    (folder / "revoked").write_text("another process")
    driver.report({"fact": "tick", "number": 1})
    submitter.read(handle, 0)
    assert not (folder / "life").exists()


def test_a_driver_that_left_has_done_nothing(folder):
    _, submitter, handle = granted(folder)
    hello = Hello("n1", "the payload's digest is another")
    (folder / "hello.n1").write_bytes(hello.to_bytes())
    (evidence,) = submitter.read(handle, 0)
    assert "before the job's first line" in evidence
    assert submitter.poll(handle) == Ended(78)


def test_a_silent_driver_is_over_after_its_life_and_two_requests(folder, monkeypatch):
    driver, submitter, handle = granted(folder)
    now = [time.monotonic()]
    clock_of(monkeypatch, lambda: now[0])
    driver.report({"fact": "tick", "number": 1})
    assert submitter.poll(handle) == Running()
    now[0] += attempt_half.LIFE_S + 2 * attempt_half.REQUEST_S - 1
    assert submitter.poll(handle) == Running()
    now[0] += 2
    assert submitter.poll(handle) == Ended(-9, log_is_whole=False)


def test_a_revoked_and_silent_driver_is_unseen_until_its_end_is_proven(folder, monkeypatch):
    monkeypatch.setattr(folder_driver, "_END_S", 0)
    _, submitter, handle = granted(folder)
    now = [time.monotonic()]
    clock_of(monkeypatch, lambda: now[0])
    submitter.end(handle)
    assert submitter.poll(handle) == Running(), "it may drain a commit"
    now[0] += 61
    assert isinstance(submitter.poll(handle), Unseen)


@pytest.mark.parametrize("is_revoked", [False, True])
@pytest.mark.parametrize("has_ticked", [False, True])
def test_another_process_need_not_wait_for_a_silence_anew(folder, is_revoked, has_ticked):
    driver, submitter, handle = granted(folder)
    driver.report({"fact": "protected"}, *([{"fact": "tick", "number": 1}] if has_ticked else ()))
    if is_revoked:
        submitter.end(handle)
    assert follower().poll(handle) == Running()
    aged(folder, attempt_half.SILENCE_S - 5)
    assert follower().poll(handle) == Running()
    aged(folder, 10)
    is_over = has_ticked or is_revoked  # else it may not have begun
    assert isinstance(follower().poll(handle), Ended) == is_over


def aged(folder, seconds):
    """Have all files been written earlier, by the clock of the storage."""
    for file in folder.iterdir():
        written = file.stat().st_mtime - seconds
        os.utime(file, (written, written))


def test_a_killed_task_asks_the_service_too(folder):
    driver = FolderDriverOfTest(folder, "n1")
    service = Service(driver)
    submitter = offering(folder, service)
    handle = submitter.submit(lambda _: None)
    service.join()
    submitter.end(handle)
    assert not service.ended
    submitter.killed.set()
    submitter.end(handle)
    assert service.ended


def test_a_driver_that_does_not_end_when_revoked_is_killed_at_its_place(folder):
    driver = FolderDriverOfTest(folder, "n1")
    service = Service(driver)
    submitter = offering(folder, service)
    handle = submitter.submit(lambda _: None)
    service.join()
    submitter.end(handle)
    assert not service.ended  # a commit that it has begun may finish
    submitter.end(handle)
    assert service.ended


def at_its_place(folder):
    """A granted driver, its place, and the submitter and handle of its attempt."""
    driver = FolderDriverOfTest(folder, "n1")
    service = Service(driver)
    submitter = offering(folder, service)
    handle = submitter.submit(lambda _: None)
    service.join()
    return driver, service, submitter, handle


def test_a_driver_is_named_as_its_place_does(folder):
    _, _, submitter, handle = at_its_place(folder)
    assert (handle.submitter, handle.name, handle.facts["job"]) == ("service", "job of n1", 7)
    assert submitter.name == "service"


def test_an_end_at_the_place_is_proof_once_no_request_is_under_way(folder):
    driver, service, submitter, handle = at_its_place(folder)
    driver.report({"fact": "protected"})
    assert submitter.poll(handle) == Running()
    service.says = Ended(3)
    service.request_s = 1e9
    assert submitter.poll(handle) == Running()
    service.request_s = 0
    until_s = time.monotonic() + 30
    while submitter.poll(handle) == Running():
        assert time.monotonic() < until_s
    assert submitter.poll(handle) == Ended(3, log_is_whole=False)
    assert all(not isinstance(entry, str) for entry in submitter.read(handle, 0)[:1])


def test_a_driver_that_its_place_shows_is_seen_though_its_folder_is_quiet(folder):
    _, service, submitter, handle = at_its_place(folder)
    for file in folder.iterdir():
        file.unlink()
    assert isinstance(submitter.poll(handle), Unseen)
    service.says = Running()
    assert submitter.poll(handle) == Running()


def test_a_place_that_does_not_answer_leaves_the_proof_to_the_folder(folder):
    driver, service, submitter, handle = at_its_place(folder)

    def away(_):
        raise SubmitterUnreachableError("no answer", remedy="wait")

    service.state = away
    assert submitter.poll(handle) == Running()
    driver.report({"fact": "end", "committed": [], "is_certain": True, "exit_code": 0})
    assert submitter.poll(handle) == Ended(0)


def test_what_is_printed_comes_after_the_facts_and_is_read_to_its_end(folder):
    driver, service, submitter, handle = at_its_place(folder)
    service.lines = ["loading\n"]
    driver.report({"fact": "protected"})
    assert submitter.read(handle, 0) == [{"fact": "protected"}, "loading\n"]
    driver.report({"fact": "end", "committed": [], "is_certain": True, "exit_code": 0})
    service.lines = ["bye\n"]
    entries = []
    while (read := submitter.read(handle, 0)) is not None:
        entries += read
    assert "bye\n" in entries


def test_after_the_end_the_last_lines_are_waited_for_until_what_printed_them_returns(folder):
    """A look that returns at once would be repeated without a pause."""
    driver, returns, waits = FolderDriverOfTest(folder, "n1"), threading.Event(), []
    service = Service(driver)
    begin, take = service.start, service.output

    def start(*command):
        begin(*command)
        returns.wait(60)

    def output(wait_s):
        waits.append(wait_s)
        return take(wait_s)

    service.start, service.output = start, output
    submitter = offering(folder, service)
    handle = submitter.submit(lambda _: None)
    service.join()
    driver.report({"fact": "end", "committed": [], "is_certain": True, "exit_code": 0})
    while driver_of(submitter, handle).proof is None:
        submitter.read(handle, 0)
    submitter.read(handle, 0.25)
    assert submitter.read(handle, 0.25) == []
    assert waits[-1] == 0.25
    returns.set()
    read_all(submitter, handle)
    assert submitter.poll(handle) == Ended(0)


def test_a_start_that_could_not_be_ended_counts_only_while_the_drivers_end_is_unproven(folder):
    driver = FolderDriverOfTest(folder, "n1")
    (folder / "hello.n1").write_bytes(Hello("n1").to_bytes())
    submitter = offering(
        folder, Service(driver, error=FenceError("a child does not end", remedy="look"))
    )
    handle = submitter.submit(lambda _: None)
    submitter.place.join()
    with pytest.raises(FenceError):
        read_all(submitter, handle)
    driver.report({"fact": "end", "committed": [], "is_certain": True, "exit_code": 0})
    facts = [entry for entry in read_all(submitter, handle) if not isinstance(entry, str)]
    assert [fact["fact"] for fact in facts] == ["end"]
    assert submitter.poll(handle) == Ended(0)


def read_all(submitter, handle):
    entries = []
    while (read := submitter.read(handle, 0.01)) is not None:
        entries += read
    return entries


def driver_of(submitter, handle):
    return submitter._followed(handle)


@pytest.mark.parametrize(("exit_code", "lines"), [(1, ["its log is there\n"]), (0, [])])
def test_of_a_driver_that_failed_its_place_has_the_last_lines(folder, exit_code, lines):
    driver, service, submitter, handle = at_its_place(folder)
    service.last_lines = lambda handle: [f"its log is {handle.facts['job'] and 'there'}\n"]
    driver.report({"fact": "end", "committed": [], "is_certain": True, "exit_code": exit_code})
    entries = []
    while (read := submitter.read(handle, 0)) is not None:
        entries += read
    assert [entry for entry in entries if entry == "its log is there\n"] == lines


class Away(AttemptFolder):
    """A folder whose storage is away for as long as it is told."""

    is_away = True

    def entries(self):
        if self.is_away:
            raise TableUnreadableError("no route to the storage", remedy="wait")
        return super().entries()


def test_a_storage_that_is_away_is_waited_for_and_given_up(folder):
    driver, _, handle = granted(folder)
    driver.report({"fact": "protected"})
    away = Away(str(folder))
    later = FolderDriver(lambda _: away, Service(), patience=Patience())
    state = later.poll(handle)
    assert isinstance(state, Unseen)
    assert state.is_away
    assert later.read(handle, 0) == []
    away.is_away = False
    assert later.read(handle, 0) == [{"fact": "protected"}]
    away.is_away, later.patience = True, Patience(0)
    with pytest.raises(SubmitterUnreachableError, match="the storage has not answered"):
        later.read(handle, 0)


def test_a_storage_that_fails_fast_is_asked_as_rarely_as_one_that_answers(folder, monkeypatch):
    _, _, handle = granted(folder)
    monkeypatch.setattr(followed_driver, "_PERIODS", PERIODS)
    clock, service, away = Clock(), Service(), Away(str(folder))
    for module in (folder_driver, followed_driver, followed_driver_module):
        only_in(monkeypatch, module, "time", monotonic=clock.monotonic)

    def output(wait_s):
        clock.sleep(wait_s + 1e-3)
        return []

    def entries():
        away.count += 1
        assert away.count < 1000
        raise TableUnreadableError("refused", remedy="wait")

    away.count, away.entries, service.output = 0, entries, output
    later = FolderDriver(lambda _: away, service)
    with pytest.raises(SubmitterUnreachableError, match="has not answered for 10 minutes"):
        list(iter(lambda: later.read(handle, TICK_S), None))
    assert 60 < away.count < 130, "each second for a minute, then every ten"


@pytest.mark.parametrize("what", ["the place", "the storage"])
def test_an_end_lasts_no_longer_than_a_signal_handler_has(folder, monkeypatch, what):
    monkeypatch.setattr(folder_driver, "_KILL_S", 0.05)
    _, submitter, handle = granted(folder)
    blocks = threading.Event()
    if what == "the place":
        submitter.place.kill = lambda _: blocks.wait()
    else:
        monkeypatch.setattr(AttemptFolder, "write", lambda *_: blocks.wait())
    submitter.killed.set()
    begun_s = time.monotonic()
    submitter.end(handle)
    blocks.set()
    assert time.monotonic() - begun_s < 60


@pytest.mark.parametrize("what", ["before it is granted", "while it runs", "as it ends"])
def test_a_kill_beside_an_operator_that_hangs_leaves_time_to_release_the_lease(
    folder, monkeypatch, what
):
    """Airflow ends a task five seconds after its request to stop."""
    clock, hangs = Clock(lambda _: time.sleep(0.001)), threading.Event()
    driver = FolderDriverOfTest(folder, "n1")
    service = Service(*([] if what == "before it is granted" else [driver]))
    submitter, start = offering(folder, service), service.start

    def start_and_hang(runner, arguments):
        start(runner, arguments)
        hangs.wait()

    def kill(handle):
        if handle and what == "as it ends":
            driver.report({"fact": "end", "exit_code": 143, "committed": [], "is_certain": True})
        hangs.wait()

    service.start, service.kill = start_and_hang, kill
    if what == "before it is granted":
        submitter.killed.set()
    else:
        handle = submitter.submit(lambda _: None)
        driver.join()
    for module in (processes, folder_driver, folder_driver_module):
        monkeypatch.setattr(module, "time", clock)
    clock.begun_s = clock.now_s
    if what == "before it is granted":
        with pytest.raises(NotSubmittedError):
            submitter.submit(lambda _: None)
    else:
        submitter.killed.set()
        submitter.end(handle)
        if what == "as it ends":
            list(iter(lambda: submitter.read(handle, TICK_S), None))
        else:
            with pytest.raises(SubmitterUnreachableError, match="asked to end"):
                submitter.read(handle, TICK_S)
        submitter.end(handle)  # as it does for any error
    assert clock.now_s - clock.begun_s < 4
    hangs.set()
    assert (folder / "revoked").exists()


def test_a_request_to_stop_in_the_middle_of_a_look_reads_no_fact_twice(folder, monkeypatch):
    """Airflow calls ``on_kill`` in a signal handler, on the thread that reads."""
    driver, submitter, handle = granted(folder)
    facts = [{"fact": "hudi", "message": str(number)} for number in range(3)]
    driver.report(*facts)
    parse, parsed = followed_driver.parse_fact, []

    def interrupted(line):
        parsed.append(line)
        if len(parsed) == 2:
            submitter.killed.set()
            submitter.end(handle)
        return parse(line)

    monkeypatch.setattr(followed_driver, "parse_fact", interrupted)
    assert submitter.read(handle, 0) == facts
    assert (folder / "revoked").exists()


def test_a_storage_that_is_away_while_a_driver_is_granted_is_asked_again(folder):
    driver = FolderDriverOfTest(folder, "n1")
    service = Service(driver)
    away = Away(str(folder))
    submitter = FolderDriver(opened, service, Submission("runner.py", away, PAYLOAD))
    threading.Timer(0.1, lambda: setattr(away, "is_away", False)).start()
    submitter.submit(lambda _: None)
    service.join()
    assert driver.ran == PAYLOAD


@pytest.fixture
def refusing(monkeypatch):
    """A storage that refuses a grant some times; returns when, by a clock that only waits advance."""
    monkeypatch.setattr(folder_driver_module, "_GATE_S", 0.3)
    monkeypatch.setattr(folder_driver_module, "time", clock := Clock())
    only_in(monkeypatch, followed_driver_module, "time", monotonic=clock.monotonic)
    refused_s, write = [], AttemptFolder.write

    def refusing(times):
        def refuses(self, name, content):
            if name == "grant" and len(refused_s) < times:
                refused_s.append(clock.now_s)
                raise TableUnreadableError("refused", remedy="wait")
            write(self, name, content)

        monkeypatch.setattr(AttemptFolder, "write", refuses)
        return refused_s

    return refusing


def test_a_storage_that_refuses_the_grant_is_not_asked_without_a_pause(folder, refusing):
    refused_s = refusing(50)
    driver, _, _ = granted(folder)
    assert driver.ran == PAYLOAD
    pauses_s = [later_s - earlier_s for earlier_s, later_s in itertools.pairwise(refused_s)]
    assert len(pauses_s) == 49
    assert min(pauses_s) > 0.29


def test_a_storage_that_takes_no_grant_is_given_up(folder, refusing):
    refused_s = refusing(5000)
    with pytest.raises(SubmitterUnreachableError, match="has not answered for 10 minutes"):
        granted(folder)
    assert refused_s[-1] - refused_s[0] < 700


def test_files_are_private_and_whole_on_a_local_disk(tmp_path):
    folder = opened(f"file://{tmp_path}/attempt")
    assert folder.entries() == {}
    assert folder.read("life") is None
    folder.write("job/trips.py", b"1")
    folder.write("life", b"1")
    folder.write("life", b"22")
    assert folder.read("life") == b"22"
    assert folder.entries().keys() == {"job", "life"}
    assert Path(tmp_path, "attempt", "life").stat().st_mode & 0o777 == 0o600
    folder.remove("life")
    folder.remove("life")
    assert folder.entries().keys() == {"job"}


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        ("s3a://lake/db//trips/", "s3a://lake/db/.airflow_occ/trips/k"),
        ("s3a://lake/trips", "s3a://lake/.airflow_occ/trips/k"),
        ("/lake/trips", "file:///lake/.airflow_occ/trips/k"),
        ("file:///lake/trips", "file:///lake/.airflow_occ/trips/k"),
        ("hdfs://nn:8020/lake/trips", "hdfs://nn:8020/lake/.airflow_occ/trips/k"),
    ],
)
def test_the_folders_of_a_table_are_beside_it(table, folder):
    assert run_folder(table, "k") == folder


@pytest.mark.parametrize("table", ["s3a://lake", "s3a://lake/", "/lake", "file:///lake"])
def test_a_table_without_a_parent_has_no_place_for_folders(table):
    with pytest.raises(ConfigurationError, match="at the root of its storage"):
        run_folder(table, "k")


def test_a_driver_is_looked_at_six_times_a_minute_after_the_first(folder, monkeypatch):
    monkeypatch.setattr(followed_driver, "_PERIODS", PERIODS)
    _, submitter, handle = granted(folder)
    followed, began_s = submitter._followed(handle), time.monotonic()
    periods_s = {}
    for minute in (0, 1, 9, 10, 600):
        now_s = began_s + 60 * minute + 1
        only_in(monkeypatch, followed_driver, "time", monotonic=lambda now_s=now_s: now_s)
        periods_s[minute] = followed.period_s
    assert periods_s == {0: 1, 1: 10, 9: 10, 10: 10, 600: 10}


@pytest.mark.parametrize("period_s", [0.0, 3600.0])
def test_who_asks_for_its_state_before_its_facts_gets_both_and_its_ticks_are_answered(
    folder, monkeypatch, period_s
):
    """As a trigger does, at each of its looks."""
    driver, _, handle = granted(folder)
    monkeypatch.setattr(followed_driver, "_PERIODS", ((1e9, period_s),))
    trigger = follower()
    for number in (1, 2, 3):
        message = {"fact": "hudi", "message": str(number)}
        driver.report(message, {"fact": "tick", "number": number})
        assert trigger.poll(handle) == Running()
        assert trigger.read(handle, 0) == [message]
        assert contract.answer_from_bytes((folder / "life").read_bytes()) == number
        assert trigger.read(handle, 0) == []


class Counted(AttemptFolder):
    """A folder that counts its requests: each listing, and each read with its first byte."""

    def __init__(self, url):
        super().__init__(url)
        self.requests = []

    def entries(self):
        self.requests.append("entries")
        return super().entries()

    def read(self, name, start=0):
        self.requests.append((name, start))
        return super().read(name, start)


def test_facts_that_have_not_changed_are_not_read_again(folder):
    driver, _, handle = granted(folder)
    counted = Counted(str(folder))
    trigger = FolderDriver(lambda _: counted, Service())
    driver.report({"fact": "protected"}, {"fact": "tick", "number": 1})
    assert trigger.read(handle, 0) == [{"fact": "protected"}]
    counted.requests.clear()
    for _ in range(3):
        assert trigger.read(handle, 0) == []
    assert counted.requests == 3 * ["entries"]
    length = (folder / "facts.jsonl").stat().st_size
    driver.report({"fact": "hudi"})
    assert trigger.read(handle, 0) == [{"fact": "hudi"}]
    assert counted.requests[4:] == [("facts.jsonl", length - 1)], "from where it had read to"


@pytest.mark.parametrize("seed", range(20))
def test_no_fact_is_returned_twice_or_lost_unless_it_was_left_out(folder, monkeypatch, seed):
    """A process that reads from where it had read to, while the middle of the facts is left out."""
    monkeypatch.setattr(followed_driver, "FIXED_FACTS", 300)
    draw, lines = random.Random(seed), Lines(300)
    _, submitter, handle = granted(folder)
    written, returned = [], []
    for _ in range(30):
        news = [
            {"fact": "hudi", "message": f"{len(written) + n} {'x' * draw.choice((0, 9, 99, 999))}"}
            for n in range(draw.randrange(4))
        ]
        written += news
        lines.add([json.dumps(fact).encode() + b"\n" for fact in news])
        (folder / "part").write_bytes(lines.content())
        (folder / "part").replace(folder / "facts.jsonl")
        if draw.random() < 0.5:
            returned += submitter.read(handle, 0)
    returned += submitter.read(handle, 0)
    gaps = [fact["lines"] for fact in returned if fact["fact"] == "left_out"]
    facts, remaining = [fact for fact in returned if fact["fact"] == "hudi"], iter(written)
    assert all(fact in remaining for fact in facts), "in their order, each once"
    assert len(written) - len(facts) == submitter._drivers["n1"]._of_runner.missed == sum(gaps)


def test_a_look_alone_answers_no_tick(folder):
    driver, _, handle = granted(folder)
    driver.report({"fact": "tick", "number": 1})
    assert follower().poll(handle) == Running()
    assert not (folder / "life").exists()


class Lease:
    """The extensions of a lease, by hand."""

    def __init__(self):
        self.extended_s, self.wanted = float("-inf"), 0

    def extend_soon(self):
        self.wanted += 1


TTL_S = 90.0


@pytest.fixture
def leased(folder):
    """A driver that was granted under a lease, and the submitter and handle of its attempt."""
    driver, submitter = FolderDriverOfTest(folder, "n1"), offering(folder, service := Service())
    service.drivers = (driver,)
    submitter.submission = replace(submitter.submission, lease_ttl_s=TTL_S)
    handle = submitter.submit(lambda _: None)
    driver.join()
    return driver, submitter, handle


def tick(number):
    return {"fact": "tick", "number": number}


def answered(folder):
    life = folder / "life"
    return contract.answer_from_bytes(life.read_bytes()) if life.exists() else None


def test_a_tick_is_answered_by_an_extension_that_began_after_it_was_read(folder, leased):
    driver, submitter, handle = leased
    lease = Lease()
    submitter.feed(lease)
    driver.report(tick(1))
    submitter.read(handle, 0)
    assert (answered(folder), lease.wanted) == (None, 1)
    after_first = time.monotonic()
    driver.report(tick(2))
    submitter.read(handle, 0)
    assert answered(folder) is None
    # The extension began between the two: whatever was stopped since, it does not cover the second.
    lease.extended_s = after_first
    submitter.read(handle, 0)
    assert answered(folder) == 1
    lease.extended_s = time.monotonic()
    submitter.read(handle, 0)
    assert answered(folder) == 2
    wanted = lease.wanted
    submitter.read(handle, 0)
    assert lease.wanted == wanted, "nothing waits for an extension"


def test_an_extension_that_began_while_the_facts_were_read_does_not_count(folder, leased, monkeypatch):
    driver, submitter, handle = leased
    lease = Lease()
    submitter.feed(lease)
    read = AttemptFolder.read

    def extends_meanwhile(self, name, start=0):
        content = read(self, name, start)
        if name == "facts.jsonl" and lease.extended_s < 0:
            lease.extended_s = time.monotonic()
        return content

    monkeypatch.setattr(AttemptFolder, "read", extends_meanwhile)
    driver.report(tick(1))
    submitter.read(handle, 0)
    assert lease.extended_s > 0
    assert answered(folder) is None


def test_a_process_without_the_lease_answers_no_leased_driver(folder, leased):
    driver, _, handle = leased
    driver.report(tick(1))
    other, handle = follower(), Handle.from_json(json.loads(json.dumps(handle.to_json())))
    for _ in range(3):
        other.read(handle, 0)
    assert answered(folder) is None
    lease = Lease()
    other.feed(lease)
    lease.extended_s = time.monotonic()
    other.read(handle, 0)
    assert answered(folder) == 1


def test_a_driver_without_a_lease_is_answered_at_once_by_any_process(folder):
    driver, submitter, handle = granted(folder)
    driver.report(tick(1))
    submitter.read(handle, 0)
    assert answered(folder) == 1
    driver.report(tick(1), tick(2))
    other, lease = follower(), Lease()
    other.feed(lease)
    other.read(handle, 0)
    assert (answered(folder), lease.wanted) == (2, 0)


def test_a_leased_driver_that_was_revoked_is_not_answered(folder, leased):
    driver, submitter, handle = leased
    lease = Lease()
    submitter.feed(lease)
    driver.report(tick(1))
    submitter.read(handle, 0)
    driver.revoke()
    submitter.read(handle, 0)
    lease.extended_s = time.monotonic()
    submitter.read(handle, 0)
    assert answered(folder) is None


def test_a_leased_driver_is_over_after_the_silence_of_its_lease(folder, leased, monkeypatch):
    driver, submitter, handle = leased
    now = [0.0]
    clock_of(monkeypatch, lambda: now[0])
    driver.report(tick(1))
    assert isinstance(submitter.poll(handle), Running)
    now[0] = attempt_half.silence_s(TTL_S, attempt_half.REQUEST_S)
    assert isinstance(submitter.poll(handle), Running)
    now[0] += 1
    assert isinstance(submitter.poll(handle), Ended)
    assert handle.facts[SILENCE_FACT] == attempt_half.silence_s(TTL_S, attempt_half.REQUEST_S)


@pytest.mark.parametrize("ttl_s", [42.0, 60.0, 600.0])
def test_a_lease_outlives_three_periods_of_all_that_an_answer_waits_for(tmp_path, ttl_s):
    folder = AttemptFolder(str(tmp_path / "a"))
    job = SparkJob(__file__, table="/lake/t", lease_ttl_s=ttl_s)
    with offered(job, {}, folder) as submission:
        payload = json.loads(submission.payload)
    assert (payload["ttl_s"], payload["is_leased"]) == (ttl_s, True)
    assert payload["guard"]["is_required"] is True
    pace = contract.DriverPace.of(payload["ttl_s"])
    assert 3 * (pace.tick_s + pace.poll_s + contract.longest_period_s(ttl_s)) <= ttl_s
    assert submission.lease_ttl_s == ttl_s


def test_without_a_lease_the_guard_may_be_missing(tmp_path):
    with offered(SparkJob(__file__, table="/lake/t"), {}, AttemptFolder(str(tmp_path / "a"))) as offer:
        payload = json.loads(offer.payload)
    assert (payload["ttl_s"], payload["is_leased"]) == (attempt_half.LIFE_S, False)
    assert payload["guard"]["is_required"] is False
    assert offer.lease_ttl_s is None
