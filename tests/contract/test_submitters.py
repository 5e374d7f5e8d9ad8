"""What every submitter promises, and how an attempt over one ends."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.earlier_tries import end_earlier_drivers
from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.record import NOTHING_BEFORE, TryKey
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, SparkJob, Submission
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import NotSubmittedError, StateStoreError
from airflow_occ_provider.hooks.spark import attempt_hook, spark_hook
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.places.of_task import Launch, PlacedTask, drivers_of, follower
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.kubernetes_place import KubernetesPlace
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.processes import Flag
from tests.contract import folder_job
from tests.contract.in_memory_submitter import Cluster, InMemorySubmitter
from tests.support.hand_made_tables import T1, C, add, begin
from tests.support.local_drivers import local_driver
from tests.support.recorded_attempts import KEY, LOG, REQUESTED, Store, attempt_of, journal
from tests.support.yarn_script import script_driver
from tests.unit.reports import fact

PATIENCE_S = 60
INTERVAL = "hoodie.client.heartbeat.interval_in_ms"


def says_three_lines(say, _):
    for line in ("one", "two", "three"):
        say(line)
    return 3


def waits(say, asked_to_end):
    say("begun")
    asked_to_end.wait(PATIENCE_S)
    return -15


SCRIPTS = {says_three_lines: "echo one; echo two; echo three; exit 3", waits: "echo begun; sleep 60"}


@pytest.fixture
def local(tmp_path):
    """Makes drivers that are processes of this host."""

    def make(job):
        folder = AttemptFolder(f"{tmp_path}/{secrets.token_hex(4)}")
        folder.write("run_job.py", Path(folder_job.__file__).read_bytes())
        offer = Submission(f"{folder.url}/run_job.py", folder, b"{}")
        words = [sys.executable, offer.application, folder.url, SCRIPTS[job]]
        return local_driver(words, {**os.environ, IDENTITY_VARIABLE: KEY}, offer)

    return make


@pytest.fixture
def yarn(request, tmp_path, monkeypatch):
    """Drivers of one real YARN, each of which runs a job's script without Spark."""
    monkeypatch.setattr(Place, "request_s", 0.5)
    monkeypatch.setattr(Place, "period_s", 0.5)
    made = []

    def make(job):
        folder = tmp_path / secrets.token_hex(4)
        made.append(script_driver(request.getfixturevalue("embedded_yarn"), folder, SCRIPTS[job]))
        return made[-1]

    yield make
    for submitter in made:
        submitter.submission.files.write("revoked", b"the test is over")
        submitter.place.kill(None)


class ByPython(Place):
    """Starts a driver of a folder as a process."""

    name = "via"

    def __init__(self, script):
        self.script, self.started = script, []

    def start(self, runner, arguments):
        command = [sys.executable, runner, *arguments, self.script]
        self.started.append(subprocess.Popen(command, start_new_session=True))


@pytest.fixture
def via(tmp_path, monkeypatch):
    """Makes drivers of a folder that anything may have started."""
    monkeypatch.setattr(Place, "request_s", 0.5)  # these have no guard that proves an end
    made = []

    def make(job):
        folder, start = AttemptFolder(f"{tmp_path}/{secrets.token_hex(4)}"), ByPython(SCRIPTS[job])
        made.append((folder, start))
        folder.write("run_job.py", Path(folder_job.__file__).read_bytes())
        offer = Submission(f"{folder.url}/run_job.py", folder, b"{}")
        return FolderDriver(AttemptFolder, start, offer)

    yield make
    for folder, start in made:
        folder.write("revoked", b"the test is over")
        for process in start.started:
            process.wait(PATIENCE_S)


@pytest.fixture
def placed(tmp_path, monkeypatch):
    """Returns what makes drivers in the place that a connection names, as a task has it."""
    monkeypatch.setattr(Place, "request_s", 0.5)
    monkeypatch.setattr(Place, "period_s", 0.5)
    job, options = tmp_path / "job.py", {IDENTITY_KEY: KEY, INTERVAL: "60000"}
    job.touch()
    with ExitStack() as stack:

        def placed(conn_id):
            table = f"{tmp_path}/lake/t"
            operator = HudiWriteOperator(task_id="t", application=str(job), table=table, conn_id=conn_id)
            spark = spark_hook(operator)
            drivers = drivers_of(PlacedTask(operator, {}, spark))
            stack.callback(drivers.forget, KEY)

            def make(job):
                submission = stack.enter_context(
                    drivers.prepared(SparkJob(operator.application), options)
                )
                runner = Path(folder_job.__file__).read_text().replace("sys.argv[2]", repr(SCRIPTS[job]))
                Path(submission.application.removeprefix("file://")).write_text(runner)
                hook = attempt_hook(spark, "t", submission.arguments, {}, {})
                return drivers.submitter(Launch(hook, submission, {}, Flag()))

            return make

        yield placed


@pytest.fixture
def spooled(spool, placed):
    """Makes drivers in the place of another package."""
    return placed("spool")


@pytest.fixture
def kubernetes(tmp_path, monkeypatch):
    """Submitters of a real cluster, each of which runs a job's script without Spark."""
    from tests.k8s.pod_script import script_driver
    from tests.k8s.spark import prepare_namespace

    monkeypatch.setattr(Place, "request_s", 0.5)
    prepare_namespace()
    made = []

    def make(job):
        made.append(script_driver(SCRIPTS[job], KEY, tmp_path))
        return made[-1]

    yield make
    for submitter in made:
        submitter.place.forget(KEY)


@pytest.fixture(
    params=[
        *("local", InMemorySubmitter, "via", "spooled"),
        pytest.param("yarn", marks=pytest.mark.yarn),
        pytest.param("kubernetes", marks=pytest.mark.k8s),
    ]
)
def submitter(request):
    given = request.param
    return request.getfixturevalue(given) if isinstance(given, str) else given


def in_another_process(one, handle):
    """A submitter like this one that knows no more than a handle."""
    if isinstance(one, InMemorySubmitter):
        return one
    if isinstance(one, FolderDriver) and isinstance(one.place, KubernetesPlace):
        return FolderDriver(AttemptFolder, KubernetesPlace(one.place._api))
    return follower(handle)


def read_all(one, handle):
    lines, deadline = [], time.monotonic() + 5 * PATIENCE_S
    while (found := one.read(handle, 0.05)) is not None:
        assert time.monotonic() < deadline
        lines += found
    if isinstance(one, FolderDriver):  # what a job prints is not there
        return [fact["line"] for fact in lines if not isinstance(fact, str) and "line" in fact]
    return [line for line in lines if isinstance(line, str) and not line.startswith("Pod ")]


def test_a_driver_is_recorded_read_and_ends(submitter):
    one, recorded = submitter(says_three_lines), []
    handle = one.submit(recorded.append)
    assert recorded == [handle]
    assert handle.submitter == one.name
    assert read_all(one, handle) == ["one\n", "two\n", "three\n"]
    assert one.poll(handle) == Ended(3)


def test_a_task_run_has_no_second_driver(submitter):
    one = submitter(waits)
    handle = one.submit(lambda _: None)
    if one.outlives_task:  # else it dies with the only process that could start another
        with pytest.raises(NotSubmittedError, match="of this task run is alive"):
            one.submit(lambda _: None)
    one.end(handle)
    read_all(one, handle)


def test_a_driver_that_is_asked_to_end_ends(submitter):
    one = submitter(waits)
    handle = one.submit(lambda _: None)
    assert one.poll(handle) == Running()
    one.end(handle)
    state = one.poll(handle)
    assert isinstance(state, Ended)
    assert state.exit_code != 0
    one.end(handle)  # again is no error
    assert one.poll(handle) == state
    read_all(one, handle)


def test_a_handle_survives_the_journal_and_a_later_process_ends_the_driver(submitter):
    first = submitter(waits)
    handle = Handle.from_json(first.submit(lambda _: None).to_json())
    later = in_another_process(first, handle)
    assert later.poll(handle) == Running()
    later.end(handle)
    read_all(first, handle)
    assert isinstance(later.poll(handle), Ended)


def test_a_driver_is_ended_by_its_place_alone(submitter):
    one = submitter(waits)
    if not isinstance(one, FolderDriver) or type(one.place).kill is Place.kill:
        pytest.skip("only the folder ends such a driver")
    handle = one.submit(lambda _: None)
    in_another_process(one, handle).place.kill(handle)
    read_all(one, handle)
    state = one.poll(handle)
    assert isinstance(state, Ended)
    assert state.exit_code != 0, "it has slept to its end"


def test_a_driver_elsewhere_is_not_in_the_session_of_its_task(submitter):
    """So it outlives all processes of the task: a worker kills them by their group."""

    def job():
        """Prints its session."""

    SCRIPTS[job] = "cut -d ' ' -f 6 /proc/$$/stat"
    one = submitter(job)
    if not isinstance(one, FolderDriver) or not one.outlives_task:
        pytest.skip("such a driver ends with its task")
    handle = one.submit(lambda _: None)
    (session,) = read_all(one, handle)
    assert int(session) != os.getsid(0)


def test_a_driver_of_another_place_is_unseen(submitter):
    far = {"host": "far", "boot": "b", "namespace": "n", "pid": 42, "started": 1, "user": 0}
    far |= {"number": 10**6, "folder": "/nowhere/at/all", "nonce": "n", "payload": "p"}
    one = submitter(waits)
    state = one.poll(Handle(one.name, "far away", far))
    assert isinstance(state, Unseen)
    assert state.reason


def refuses(_):
    raise StateStoreError("the store is away")


def test_a_driver_that_cannot_be_recorded_does_nothing(submitter, tmp_path):
    ran = []

    def job(say, asked_to_end):
        ran.append(1)
        return waits(say, asked_to_end)

    SCRIPTS[job] = f"touch {tmp_path / 'ran'}; sleep 60"
    one = submitter(job)
    with pytest.raises(StateStoreError):
        one.submit(refuses)
    assert not ran
    assert not (tmp_path / "ran").exists()


# An attempt over a submitter.


def commits(folder):
    def job(say, _):
        say(REQUESTED)
        say("x INFO TransactionUtils: Successfully resolved conflicts, if any")
        add(folder, f"{T1}_{C}.commit", identity=KEY)
        return 0

    return job


def dies_with_a_ghost(folder):
    def job(say, _):
        say(REQUESTED)
        begin(folder, T1)
        return -9

    return job


def fails_before_it_writes(_):
    return lambda say, _: say(fact("protected", options=1)) or say("the input is not there") or 1


@pytest.mark.parametrize("kind", [commits, dies_with_a_ghost, fails_before_it_writes])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_attempt_ends_in_the_outcome_that_the_table_shows(folder, kind, elsewhere):
    one = journal(Store())
    one.begin("d", NOTHING_BEFORE)
    submitter = InMemorySubmitter(kind(folder), outlives_task=elsewhere)
    attempt = attempt_of(folder, one, submitter)
    attempt.watch()
    settlement = attempt.settle(is_judged=True)
    (kept,) = one.record.attempts
    error, beats = settlement.error(), (folder / ".heartbeat" / T1).exists()
    assert kept.driver is not None
    if kind is commits:
        assert (settlement.outcome, error) == (Outcome.COMMITTED, None)
        assert settlement.commit.instant.time == T1
    elif kind is dies_with_a_ghost:
        assert settlement.outcome is Outcome.KILLED
        assert error.retry
        assert not beats
        assert kept.settled
    else:
        assert settlement.outcome is Outcome.JOB_ERROR
        assert error.committed is False
    assert kept.end


class CutOff(InMemorySubmitter):
    """Its log lacks the end."""

    def poll(self, handle):
        state = super().poll(handle)
        return replace(state, log_is_whole=False) if isinstance(state, Ended) else state


@pytest.mark.parametrize("kind", [InMemorySubmitter, CutOff])
def test_a_log_with_something_missing_is_not_recorded_as_read(folder, kind):
    one = journal(Store())
    one.begin("d", NOTHING_BEFORE)
    attempt = attempt_of(folder, one, kind(dies_with_a_ghost(folder)))
    attempt.watch()
    attempt.settle()
    (kept,) = one.record.attempts
    assert kept.log_read is (kind is InMemorySubmitter)


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_remote_driver_that_wrote_nothing_has_said_so_itself(folder, is_heard):
    def job(say, _):
        say(fact("protected", followed=True) if is_heard else "hello")
        return 0

    one = journal(Store())
    one.begin("d", NOTHING_BEFORE)
    attempt = attempt_of(folder, one, InMemorySubmitter(job, outlives_task=True))
    attempt.watch()
    settlement = attempt.settle(is_judged=True)
    expected = Outcome.NOTHING_WRITTEN if is_heard else Outcome.MISCONFIGURATION
    assert settlement.outcome is expected, settlement.lines


def test_the_next_try_ends_a_driver_that_outlived_its_task(folder):
    cluster, store = Cluster(), Store()
    died, submitter = journal(store), InMemorySubmitter(waits, cluster, outlives_task=True)
    died.begin("d", NOTHING_BEFORE)
    handle = submitter.submit(attempt_of(folder, died, submitter).recorder.started)
    later = InMemorySubmitter(waits, cluster, outlives_task=True)
    end_earlier_drivers(Journal(store, TryKey(2, 5)), lambda _: later, LOG)
    assert isinstance(later.poll(handle), Ended)
    assert store.record["attempts"][0]["end"] == "ended by try 2"


class StopsAt:
    def __init__(self, line, stop):
        self.line, self.reason, self.seen, self.stop = line, stop, [], None

    def on_line(self, line):
        self.seen.append(line)
        self.stop = self.reason if line.strip() == self.line else self.stop


def test_the_first_stop_wins_and_every_guard_sees_every_line(folder):
    first, second = Stop(Outcome.HEARTBEAT_EXPIRED, "first"), Stop(Outcome.ROLLED_BACK, "second")
    guards = [StopsAt("none", second), StopsAt("begun", first), StopsAt("begun", second)]
    attempt = attempt_of(folder, journal(Store()), InMemorySubmitter(waits))
    attempt.watch(guards, [guard.on_line for guard in guards])
    settlement = attempt.settle(is_judged=True)
    assert (settlement.outcome, settlement.lines) == (Outcome.HEARTBEAT_EXPIRED, ("first",))
    assert [guard.seen for guard in guards] == [["begun\n"]] * 3
