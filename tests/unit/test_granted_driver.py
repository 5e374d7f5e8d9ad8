"""The driver's half of the contract, with a real folder, threads and clocks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import MagicMock

import pytest

from airflow_occ_provider.driver.contract import (
    FACTS,
    GRANT,
    HELLO_PREFIX,
    LIFE,
    PAYLOAD,
    REVOKED,
    DriverPace,
    Grant,
    GuardState,
    Hello,
    Leave,
    Life,
    Moment,
    answer_to_bytes,
    digest,
)
from airflow_occ_provider.in_driver import granted, report, run_job
from airflow_occ_provider.in_driver.folder import HadoopFolder, LocalFolder

PATIENCE_S = 60
JOB = b'{"application": "a job"}'


class Storage(LocalFolder):
    """A folder whose requests can be refused or held."""

    def __init__(self, path):
        super().__init__(str(path))
        self.refusals, self.hold, self.is_held = 0, threading.Event(), threading.Event()
        self.hold.set()

    def _ask(self):
        if not self.hold.is_set():
            self.is_held.set()
            self.hold.wait(PATIENCE_S)
        if self.refusals:
            self.refusals -= 1
            raise OSError("the storage is away")

    def entries(self):
        self._ask()
        return super().entries()

    def read(self, name):
        self._ask()
        return super().read(name)


@pytest.fixture
def storage(tmp_path):
    return Storage(tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(report, "PERIOD_S", 0.02)
    monkeypatch.setattr(granted, "STEP_S", 0.02)


def in_thread(call):
    """Start a call; return its thread, and the list that gets its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    return thread, results


def wait_for(happened):
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def waiting(storage, limit_s=PATIENCE_S, leave=print):
    return granted.WaitingDriver(storage, {"host": "h"}, leave, limit_s)


def grant(storage, nonce, payload=JOB):
    storage.write(PAYLOAD, payload)
    storage.write(GRANT, Grant(nonce, digest(JOB)).to_bytes())


def hello(storage, nonce):
    name = HELLO_PREFIX + nonce
    return Hello.from_bytes(name, storage.read(name))


def test_a_driver_is_admitted_with_its_payload_whose_file_is_removed(storage):
    driver = waiting(storage)
    thread, outcomes = in_thread(driver.wait)
    wait_for(lambda: storage.entries().keys() == {HELLO_PREFIX + driver.nonce})
    assert hello(storage, driver.nonce) == Hello(driver.nonce, None, {"host": "h"})
    grant(storage, driver.nonce)
    thread.join(PATIENCE_S)
    assert outcomes[0].payload == JOB
    assert storage.entries().keys() == {HELLO_PREFIX + driver.nonce, GRANT}


def test_requests_that_fail_are_looks_that_show_nothing(storage):
    driver = waiting(storage)
    grant(storage, driver.nonce)
    storage.refusals = 3
    assert driver.wait().payload == JOB


def test_a_driver_whose_folder_is_removed_leaves_and_does_not_make_it_anew(storage, tmp_path):
    """As that of a settled attempt, which was submitted and never recorded."""
    driver = waiting(storage)
    thread, outcomes = in_thread(driver.wait)
    wait_for(lambda: HELLO_PREFIX + driver.nonce in storage.entries())
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    thread.join(PATIENCE_S)
    assert "removed" in outcomes[0].why
    assert not tmp_path.exists()


@pytest.mark.parametrize("payload", [JOB + b" ", b"", None])
def test_another_payload_than_the_granted_one_is_not_run_and_not_kept(storage, payload):
    driver = waiting(storage)
    grant(storage, driver.nonce, payload or b"")
    if payload is None:
        storage.delete(PAYLOAD)
    assert isinstance(driver.wait(), Leave)
    assert hello(storage, driver.nonce).left
    assert PAYLOAD not in storage.entries()


def test_a_revocation_that_follows_the_grant_wins(storage):
    driver = waiting(storage)
    grant(storage, driver.nonce)
    read = storage.read

    def revoked_meanwhile(name):
        storage.write(REVOKED, b"")
        return read(name)

    storage.read = revoked_meanwhile
    assert driver.wait() == Leave("the attempt was revoked")


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_request_that_blocks_cannot_keep_a_driver_beyond_its_limit(storage, monkeypatch, is_granted):
    monkeypatch.setattr(granted, "PAYLOAD_S", 0.3)
    has_left = threading.Event()
    driver = waiting(storage, PATIENCE_S if is_granted else 0.3, lambda _: has_left.set())
    if is_granted:
        grant(storage, driver.nonce)
        read = storage.read
        storage.read = lambda name: (storage.hold.clear() if name == PAYLOAD else None) or read(name)
    else:
        storage.hold.clear()
    thread, outcomes = in_thread(driver.wait)
    assert has_left.wait(PATIENCE_S)
    storage.hold.set()
    assert hello(storage, driver.nonce).left.startswith("no payload" if is_granted else "no grant")
    thread.join(0.3)
    assert (thread.is_alive(), outcomes) == (True, [])  # the choice was made: it never goes on


class Running:
    """A granted driver: its facts, and whether it was killed."""

    def __init__(self, storage, ttl_s=None, tick_s=0.05, poll_s=0.02, *, is_leased=True):
        self.storage, self.killed = storage, threading.Event()
        self.report = report.Report(self._write, self.say)
        life = Life.begin(ttl_s, granted.moment(), is_leased=is_leased)
        self.driver = granted.GrantedDriver(
            storage,
            "n",
            life,
            self.report,
            say=self.say,
            kill=self.killed.set,
            pace=DriverPace(tick_s, poll_s),
        )

    def _write(self, content):
        LocalFolder.write(self.storage, FACTS, content)

    def say(self, fact, **details):
        self.report.add(json.dumps({"fact": fact, **details}).encode() + b"\n")

    def facts(self, kind):
        content = LocalFolder.read(self.storage, FACTS) or b""
        facts = map(json.loads, content.splitlines())
        return [fact for fact in facts if fact["fact"] == kind]

    def newest_tick(self):
        return max((tick["number"] for tick in self.facts("tick")), default=0)


@pytest.fixture
def running(storage):
    """Start granted drivers, and have their threads end with the test."""
    started = []

    def start(guard=None, **more):
        process = Running(storage, **more)
        started.append(process)
        if guard:
            process.driver.guarded(guard)
        process.driver.start()
        return process

    yield start
    for process in started:
        process.driver._ending.acquire(blocking=False)
        process.report.close(1)


class Guard:
    """In the place of the guard in the JVM."""

    def __init__(self, passing=None, closes=True):
        self.is_closed, self.passing, self.closes = False, passing, closes
        self.committed = ("T1",)
        self.asked = threading.Event()

    def wait_for_signal(self):
        assert self.asked.wait(PATIENCE_S)

    def close(self):
        if not self.closes:
            threading.Event().wait(PATIENCE_S)
        self.is_closed = True

    def state(self):
        return GuardState(self.is_closed, self.passing, self.committed)

    def extend(self, *_):
        pass


def test_a_revocation_ends_a_driver_which_reports_that(storage, running):
    process = running()
    storage.write(REVOKED, b"")
    assert process.killed.wait(PATIENCE_S)
    (end,) = process.facts("end")
    assert (end["why"], end["is_certain"]) == ("the attempt was revoked", False)


def test_a_life_lasts_by_its_answered_ticks(storage, running, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(granted, "moment", lambda: Moment(clock[0], clock[0]))
    process = running(ttl_s=3)
    wait_for(lambda: process.newest_tick() == 1)  # at once; the next one with the clock
    for _ in range(3):
        before = process.newest_tick()
        clock[0] += 2
        wait_for(lambda before=before: process.newest_tick() > before)
        storage.write(LIFE, answer_to_bytes(process.newest_tick()))
        wait_for(lambda: process.driver._life.answered == process.newest_tick())
    assert not process.killed.is_set()
    storage.write(LIFE, answer_to_bytes(10_000))  # of no tick: it extends nothing
    clock[0] += 3
    assert process.killed.wait(PATIENCE_S)
    assert process.facts("end")[0]["why"] == "its lease was not extended in time"


def test_a_leased_driver_ticks_and_looks_at_once_for_its_first_answer(storage, running):
    process = running(ttl_s=3600, tick_s=1000, poll_s=1000)
    wait_for(lambda: process.newest_tick() == 1)
    storage.write(LIFE, answer_to_bytes(1))
    wait_for(lambda: process.driver._life.answered == 1)
    assert not process.driver._life.awaits_answer


def test_a_driver_without_a_lease_awaits_no_answer():
    begun = granted.moment()
    assert Life.begin(60, begun).awaits_answer
    assert not Life.begin(60, begun, is_leased=False).awaits_answer
    assert not Life.begin(None, begun).awaits_answer


@pytest.mark.parametrize("ttl_s", [60.0, 120.0, 300.0, 900.0, None])
def test_ticks_and_looks_leave_most_of_a_life(ttl_s):
    pace = DriverPace.of(ttl_s)
    assert ttl_s is None or 3 * (pace.tick_s + pace.poll_s) < ttl_s
    assert pace.pause_s(0) <= 1.0
    assert pace.pause_s(3600) == pace.poll_s <= 10
    assert pace.report_pause_s <= pace.tick_s, "a tick is not held back"


def test_the_first_tick_is_due_at_once(running):
    process = running(tick_s=3600)
    wait_for(lambda: process.newest_tick() == 1)


def test_a_life_ends_though_no_request_is_answered(storage, running, monkeypatch):
    monkeypatch.setattr(granted, "UNGUARDED_REPORT_S", 0.1)
    storage.hold.clear()
    process = running(ttl_s=0.3)
    process.report._write = lambda _: storage.hold.wait(PATIENCE_S)
    assert process.killed.wait(PATIENCE_S)
    storage.hold.set()


def test_the_end_waits_for_a_passing_commit_behind_a_closed_guard(storage, running):
    guard = Guard(passing="T2")
    process = running(guard)
    storage.write(REVOKED, b"")
    wait_for(lambda: guard.is_closed)
    assert not process.facts("end")
    guard.committed, guard.passing = ("T1", "T2"), None
    assert process.killed.wait(PATIENCE_S)
    (end,) = process.facts("end")
    assert (end["committed"], end["is_certain"]) == (["T1", "T2"], True)


@pytest.mark.parametrize("guard", [Guard(passing="T2"), Guard(closes=False)])
def test_a_commit_or_a_jvm_that_hangs_delays_the_end_but_not_for_long(
    storage, running, monkeypatch, guard
):
    monkeypatch.setattr(granted, "DRAIN_S", 0.2)
    process = running(guard)
    storage.write(REVOKED, b"")
    assert process.killed.wait(PATIENCE_S)
    (end,) = process.facts("end")
    assert end["is_certain"] is False


@pytest.mark.parametrize(
    ("guard", "has_run", "expected"),
    [
        (None, True, {"committed": [], "is_certain": False}),
        (None, False, {"committed": [], "is_certain": True}),
        (Guard(), True, {"committed": ["T1"], "is_certain": True}),
    ],
)
def test_the_end_of_a_job_says_what_is_certain_of_its_commits(running, guard, has_run, expected):
    process = running(guard)
    assert process.driver.finish(has_run=has_run) == expected
    assert guard is None or guard.is_closed
    process.driver.end("too late")  # the end of the job is the end
    assert not process.killed.is_set()


def test_a_driver_that_is_being_ended_has_no_other_end(storage, running):
    guard = Guard(passing="T2")
    process = running(guard)
    storage.write(REVOKED, b"")
    wait_for(lambda: guard.is_closed)
    in_thread(process.driver.finish)
    guard.passing = None
    assert process.killed.wait(PATIENCE_S)
    assert [end["exit_code"] for end in process.facts("end")] == [granted.EXIT_ENDED]


def test_a_signal_that_the_jvm_alone_gets_ends_its_driver(running):
    guard = Guard()
    process = running(guard)
    process.driver.heed_signal_of_jvm()
    guard.asked.set()
    assert process.killed.wait(PATIENCE_S)
    (end,) = process.facts("end")
    assert (end["why"], end["is_certain"]) == (granted.ASKED_TO_STOP, True)


TAKES_SIGNALS = """
import os, signal, threading
from airflow_occ_provider.driver.contract import Life
from airflow_occ_provider.in_driver import granted

class Report:
    def close(self, limit_s):
        return True

driver = granted.GrantedDriver(
    None, "n", Life.begin(None, granted.moment()), Report(),
    say=lambda fact, **details: print(fact, details["why"], flush=True),
    kill=lambda: os._exit(granted.EXIT_ENDED),
)
driver.heed_signal()
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0)
print("fork", os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait(60)
"""


def test_sigterm_ends_a_driver_and_a_fork_of_it_as_usual():
    command = [sys.executable, "-c", TAKES_SIGNALS]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == granted.EXIT_ENDED
    assert done.stdout.splitlines() == ["fork 15", f"end {granted.ASKED_TO_STOP}"]


JOB_WITH_THREADS = """
import json, threading, time
from airflow_occ_provider.in_driver import run_job

class Driver:
    def finish(self):
        return {"committed": list(commits), "is_certain": True}

class Copy:
    def add(self, line):
        print(line.decode(), end="")

commits = []
run_job.GRANTED.append(Driver())
run_job.REPORTS.append(Copy())
run_job.run("job.py", [])
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)"])
def test_the_end_of_a_job_waits_for_its_threads(tmp_path, end):
    job = (
        "import sys, threading, time\n"
        "def commit():\n"
        "    threading.main_thread().join(0.2)\n"
        "    commits.append('T1')\n"
        f"commits = sys.modules['program'].commits\n"
        f"threading.Thread(target=commit).start()\n{end}\n"
    )
    (tmp_path / "job.py").write_text(job)
    (tmp_path / "program.py").write_text(JOB_WITH_THREADS)
    command = [sys.executable, "-c", "import program"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "fact": "end",
        "exit_code": 0,
        "committed": ["T1"],
        "is_certain": True,
    }


JVM_AS_CHILD = """
import subprocess
from airflow_occ_provider.in_driver import run_job

run_job.KILL_S = 0.1
jvm = subprocess.Popen(["sleep", "600"])
run_job.kill(None, jvm.pid)  # a JVM that is gone answers by an error
print("it lives")
"""


def test_a_driver_whose_jvm_is_not_its_parent_ends_with_its_jvm():
    command = [sys.executable, "-c", JVM_AS_CHILD]  # the output ends with the last of both
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


@pytest.mark.parametrize("scheme", ["file", "hdfs", "s3a"])
def test_a_file_that_is_being_written_is_none_of_the_contracts(scheme):
    """``hello.n.part`` was taken for the hello of a driver ``n.part``, which then was granted."""
    jvm = MagicMock()
    jvm.org.apache.hadoop.fs.Path = lambda url: MagicMock(url=url)
    files = jvm.org.apache.hadoop.fs.FileSystem.newInstance.return_value
    files.getUri().getScheme.return_value = scheme
    HadoopFolder(jvm, MagicMock(), f"{scheme}:/f").write("hello.n", b"x")
    (written,) = [call.args[0].url for call in files.create.call_args_list]
    is_renamed = jvm.org.apache.hadoop.fs.FileContext.getFileContext().rename.called
    assert written == f"{scheme}:/f/{'.hello.n.part' if is_renamed else 'hello.n'}"
    assert is_renamed is (scheme != "s3a")


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["s3a://b/f"], "s3a://b/f"),
        (["--JOB_NAME", "x", "--airflow_occ_folder", "s3a://b/f", "--more"], "s3a://b/f"),
        (["--airflow_occ_folder=s3a://b/f", "x", "y"], "s3a://b/f"),
        (["0" * 64, "payload.json"], None),
    ],
)
def test_a_folder_is_named_alone_or_among_other_arguments(arguments, folder):
    assert run_job.folder_of(arguments) == folder
