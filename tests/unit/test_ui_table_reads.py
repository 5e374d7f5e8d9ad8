"""What the pages read: shared, bounded, and shown with its age if it is old."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.concurrency import run_in_threadpool

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import AttemptRecord, TaskRecord
from airflow_occ_provider.errors import (
    ConfigurationError,
    LockUnreachableError,
    StorageStalledError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.reading.overview import queue_lines
from airflow_occ_provider.reading.table_state import Bar, TableState
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.ui import shared_read, table_readers, table_reads
from airflow_occ_provider.ui.compose import attempts_of, known_table
from airflow_occ_provider.ui.known_tables import TableSource
from airflow_occ_provider.ui.shared_read import SharedRead, SharedValue, problem_of
from airflow_occ_provider.ui.table_reads import TableReading, TableReads
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.stalls.store import StallingFileSystem
from tests.support.memory_store import MemoryStore

TABLES = Path(__file__).parents[1] / "golden" / "tables"
REQUEST_S = 0.2
AWAY = LockUnreachableError("zk1:2181 is away", remedy="start it")


@pytest.fixture(params=HUDI_RELEASES)
def source(request, tmp_path):
    path = str(unpack(TABLES / request.param / "early_conflict.zip", tmp_path))
    return TableSource("early", path, None, "lock")


class Service:
    """A queue in memory that only answers ``requests``, or fails."""

    def __init__(self, nodes, failures):
        self._queue, self._failures, self.is_closed = Queue(nodes), failures, False

    def requests(self):
        if self._failures:
            raise self._failures.pop()
        return self._queue.requests()

    def close(self):
        self.is_closed = True


@pytest.fixture
def lock(monkeypatch):
    """The lock connection: its nodes, its failures to come, the sessions that were opened."""
    made = SimpleNamespace(nodes=MemoryStore(), failures=[], opened=[])

    def leases():
        made.opened.append(Service(made.nodes, made.failures))
        return made.opened[-1]

    monkeypatch.setattr(table_reads, "lock_hook", lambda _: SimpleNamespace(leases=leases))
    return made


@pytest.fixture
def always(monkeypatch):
    """No period: each page is a read."""
    monkeypatch.setattr(table_reads, "PERIOD_S", 0.0)


def ask(nodes, number, table):
    owner = Owner(("d", "r", f"t{number}"))
    Queue(nodes).request(Request(f"r{number}", owner, (Scope.of(table, None),), 1))


def test_a_reading_has_the_writers_and_the_queue_of_the_table(source, lock):
    for number, table in enumerate([source.path, "/other", source.path]):
        ask(lock.nodes, number, table)
    before = lock.nodes.stamps()
    reading = asyncio.run(TableReads().table(source))
    assert {one.fate for one in reading.state.writers} == {Fate.DEAD}
    assert [one.queued.request.id for one in reading.state.queue] == ["r0", "r2"]
    assert [one.holds for one in reading.state.queue] == [True, False]
    assert (reading.storage.problem, reading.queue.problem, reading.findings) == ("", "", None)
    assert lock.nodes.stamps() == before


def test_the_lines_of_a_queue_are_made_once_per_read_and_not_by_the_server(lock, monkeypatch):
    made, real = [], table_reads.queue_lines

    def lines(queue, table):
        made.append((table, len(queue), threading.current_thread()))
        return real(queue, table)

    monkeypatch.setattr(table_reads, "queue_lines", lines)
    for number, table in enumerate(["/a", "/b", "/a"]):
        ask(lock.nodes, number, table)
    shared = TableReads()
    sources = [TableSource(one, f"/{one}", None, "lock", is_read=False) for one in "abc"]

    async def many():
        return [await shared.table(one) for _ in range(5) for one in sources]

    shown = asyncio.run(many())
    assert [len(one.state.queue) for one in shown] == [2, 1, 0] * 5
    tables = [table for table, *_ in made]
    assert len(tables) == len(set(tables))
    assert {"/a": 2, "/b": 1}.items() <= {table: of for table, of, _ in made}.items()
    assert threading.main_thread() not in {thread for *_, thread in made}


def test_a_line_waits_also_for_requests_of_its_other_tables(lock):
    both = (Scope.of("/a", None), Scope.of("/b", None))
    for name, scopes in {"b": both[1:], "ab": both, "c": (Scope.of("/c", None),)}.items():
        Queue(lock.nodes).request(Request(name, Owner(("d", "r", name)), scopes, 1))
    requests = Queue(lock.nodes).requests()
    foreign = replace(QueuedRequest.unreadable("x", (0,)), order=(-1,))
    for queue in (requests, (foreign, *requests)):
        known = table_reads.QueueState.of(queue)
        for table in ("/a", "/b", "/c", "/other"):
            assert known.at(table) == tuple(queue_lines(queue, table))


def test_a_table_that_only_a_queue_names_is_not_read(source, lock, monkeypatch):
    monkeypatch.setattr(table_readers, "open_table", None)
    ask(lock.nodes, 0, "/other")
    reading = asyncio.run(
        TableReads().table(TableSource("other", "/other", None, "lock", is_read=False))
    )
    assert reading.storage is None
    assert [one.queued.request.id for one in reading.state.queue] == ["r0"]


def test_without_a_lock_service_the_table_is_shown(source, lock, always):
    shared = TableReads()
    lock.failures.append(AWAY)

    async def twice():
        return [await shared.table(source) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert (first.state.queue, first.queue.problem) == (
        None,
        "The lock service does not answer in time.",
    )
    assert len(first.state.writers) == 2
    assert (second.state.queue, second.queue.problem) == ((), "")
    assert [one.is_closed for one in lock.opened] == [True, False]


def test_pages_share_one_session_per_lock_connection(source, lock, always):
    shared = TableReads()

    async def three_times():
        for _ in range(3):
            await shared.table(source)

    asyncio.run(three_times())
    assert [one.is_closed for one in lock.opened] == [False]


def test_a_session_is_opened_anew_after_some_minutes(lock, always, monkeypatch):
    shared = TableReads()
    monkeypatch.setattr(table_reads, "REOPENED_S", 0.0)

    async def twice():
        for _ in range(2):
            await shared.queue("lock", table_reads.page_end())

    asyncio.run(twice())
    assert [one.is_closed for one in lock.opened] == [True, False]


@pytest.fixture
def stalling(source, lock, monkeypatch, tmp_path):
    """The switch of a storage that answers nothing while the file is there."""
    stall = tmp_path / "stall"
    files = StallingFileSystem(stall=stall, skip_instance_cache=True)
    opened = partial(HudiTable, source.path, files, timeout_s=REQUEST_S)
    monkeypatch.setattr(table_readers, "open_table", lambda *_, **__: opened())
    yield stall
    stall.unlink(missing_ok=True)


def test_a_storage_that_stalls_leaves_the_old_picture_with_age_and_reason(source, stalling, always):
    shared = TableReads()

    async def reads_over_a_stall():
        before = await shared.table(source)
        stalling.touch()
        during = await shared.table(source)
        stalling.unlink()
        return before, during, await shared.table(source)

    before, during, after = asyncio.run(reads_over_a_stall())
    assert during.state.at_ms == before.state.at_ms < after.state.at_ms
    assert during.storage.problem == "The storage does not answer in time."
    assert during.storage.age_s >= REQUEST_S
    assert (before.storage.problem, after.storage.problem) == ("", "")


def test_a_table_that_was_never_read_shows_its_queue_and_the_reason(source, stalling, lock):
    stalling.touch()
    ask(lock.nodes, 0, source.path)
    reading = asyncio.run(TableReads().table(source))
    assert (reading.storage.value, reading.storage.age_s) == (None, None)
    assert reading.storage.problem == "The storage does not answer in time."
    assert len(reading.state.queue) == 1


def test_a_failure_is_an_answer_for_the_whole_period(source, stalling):
    stalling.touch()
    shared = TableReads()

    async def twice():
        first = await shared.table(source)
        stalling.unlink()
        return first, await shared.table(source)

    first, second = asyncio.run(twice())
    assert second.storage.problem == first.storage.problem != ""


def test_twenty_pages_at_once_are_one_read(source, lock, monkeypatch):
    reads, real = [], table_readers.read_state
    monkeypatch.setattr(table_readers, "read_state", lambda *a, **k: reads.append(a) or real(*a, **k))
    shared = TableReads()

    async def at_once():
        return await asyncio.gather(*(shared.table(source) for _ in range(20)))

    assert len({one.state.at_ms for one in asyncio.run(at_once())}) == 1
    assert len(reads) == len(lock.opened) == 1


def test_a_read_that_takes_too_long_goes_on_without_the_page(source, lock, monkeypatch, always):
    shared, go_on = TableReads(), threading.Event()
    first = asyncio.run(shared.table(source))
    real = table_readers.read_state
    monkeypatch.setattr(table_readers, "read_state", lambda *a, **k: go_on.wait() and real(*a, **k))
    monkeypatch.setattr(table_reads, "PATIENCE_S", 0.01)
    late = asyncio.run(shared.table(source))
    assert (late.state.at_ms, late.storage.is_late) == (first.state.at_ms, True)
    assert late.storage.age_s > 0
    monkeypatch.setattr(table_reads, "PATIENCE_S", 60)
    go_on.set()
    assert asyncio.run(shared.table(source)).state.at_ms > first.state.at_ms


def test_a_late_read_is_no_answer_and_a_failed_one_is(source, stalling, lock, monkeypatch, always):
    shared = TableReads()
    stalling.touch()

    async def pages():
        monkeypatch.setattr(table_reads, "PATIENCE_S", 0.0)
        late = known_table(await shared.table(source))
        monkeypatch.setattr(table_reads, "PATIENCE_S", 60)
        failed = known_table(await shared.table(source))
        monkeypatch.setattr(table_reads, "PATIENCE_S", 0.0)
        again = known_table(await shared.table(source))
        stalling.unlink()
        monkeypatch.setattr(table_reads, "PATIENCE_S", 60)
        await shared.table(source)
        first = known_table(await shared.table(source))
        monkeypatch.setattr(table_reads, "PATIENCE_S", 0.0)
        return late, failed, again, first, known_table(await shared.table(source))

    late, failed, again, answered, late_again = asyncio.run(pages())
    assert [one.storage.answers for one in (late, failed, again)] == [None, False, False]
    assert failed.storage.reason == again.storage.reason == "The storage does not answer in time."
    assert failed.storage.reading_since_ms is answered.storage.reading_since_ms is None
    assert late.storage.reading_since_ms <= again.storage.reading_since_ms
    assert (answered.storage.answers, late_again.storage.answers) == (True, True)
    assert late_again.storage.reading_since_ms is None
    assert not late_again.is_stale


@pytest.mark.parametrize(("running_s", "is_shown"), [(0.0, False), (4.9, False), (5.0, True)])
def test_a_read_is_shown_as_slow_after_the_time_of_a_request(source, running_s, is_shown):
    state = TableState(source.path, 0)
    reading = SharedValue(state, 1.0, running_s=running_s)
    known = known_table(TableReading(source, state, reading, None))
    assert (known.storage.reading_since_ms is not None) == is_shown
    first = known_table(TableReading(source, None, SharedValue(running_s=running_s), None))
    assert first.storage.reading_since_ms is not None


def test_a_page_waits_for_no_read_after_its_end(source, lock, monkeypatch):
    shared, go_on = TableReads(), threading.Event()
    monkeypatch.setattr(table_readers, "read_state", lambda *_, **__: go_on.wait())
    monkeypatch.setattr(table_reads, "lock_hook", lambda _: go_on.wait())
    ended_s = time.monotonic()

    async def page():
        return await shared.queues(["lock"], ended_s), await shared.table(source, ended_s)

    queues, reading = asyncio.run(page())
    go_on.set()
    assert queues == {}
    assert reading.storage.is_late
    assert reading.queue.is_late


def test_reads_that_block_take_four_threads_and_none_of_the_servers(lock, monkeypatch):
    shared, go_on, threads = TableReads(), threading.Event(), set()

    def blocks(*_, **__):
        threads.add(threading.current_thread().name)
        go_on.wait()
        raise TableUnreadableError("blocked", remedy="none")

    monkeypatch.setattr(table_readers, "read_state", blocks)
    monkeypatch.setattr(table_reads, "PATIENCE_S", 0.05)
    sources = [TableSource(f"t{number}", f"/t{number}") for number in range(45)]

    async def pages():
        shown = await asyncio.gather(*map(shared.table, sources))
        return shown, await run_in_threadpool(threading.current_thread)

    shown, other = asyncio.run(pages())
    go_on.set()
    shared._pool.shutdown(cancel_futures=True)
    assert all(one.storage.is_late for one in shown)
    assert len(threads) == 4
    assert other.name not in threads


def test_findings_are_read_beside_the_page(lock, tmp_path):
    source = TableSource("t", str(unpack(TABLES / "1.2.0" / "rolled_back_alive.zip", tmp_path)))
    shared = TableReads()

    async def until_known():
        first = await shared.table(source, with_findings=True)
        while not (last := await shared.table(source, with_findings=True)).findings.value:
            assert not last.findings.problem
        return first, last

    first, last = asyncio.run(until_known())
    assert first.findings.value is None
    assert "eager_cleaner" in {one.check for one in last.findings.value}


def test_a_list_shows_known_findings_and_starts_no_examination(lock, tmp_path, monkeypatch):
    source = TableSource("t", str(unpack(TABLES / "1.2.0" / "rolled_back_alive.zip", tmp_path)))
    shared, examined, real = TableReads(), [], table_readers.examine
    monkeypatch.setattr(table_readers, "examine", lambda *a, **k: examined.append(a) or real(*a, **k))

    async def until_known():
        first = await shared.table(source)
        while not (await shared.table(source, with_findings=True)).findings.value:
            pass
        return first, await shared.table(source)

    first, last = asyncio.run(until_known())
    assert known_table(first).findings is None
    assert known_table(last).worst.check == "eager_cleaner"
    assert len(examined) == 1


def test_a_failed_examination_is_told(lock, tmp_path, monkeypatch):
    source = TableSource("t", str(unpack(TABLES / "1.2.0" / "rolled_back_alive.zip", tmp_path)))
    shared = TableReads()

    def fails(*_, **__):
        raise StorageStalledError("secret", remedy="")

    monkeypatch.setattr(table_readers, "examine", fails)

    async def until_failed():
        while not (reading := await shared.table(source, with_findings=True)).findings.problem:
            pass
        return known_table(reading)

    known = asyncio.run(until_failed())
    assert (known.findings, known.findings_problem) == (None, "The storage does not answer in time.")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def requests(monkeypatch):
    made, real = [], TableFolder.ask

    def ask(self, name, call):
        made.append(name)
        return real(self, name, call)

    monkeypatch.setattr(TableFolder, "ask", ask)
    return made


def test_a_refresh_of_two_pending_writes_costs_a_bounded_number_of_requests(
    source, lock, requests, always
):
    shared, costs = TableReads(), []

    async def three_times():
        for _ in range(3):
            requests.clear()
            await shared.table(source)
            costs.append(len(requests))

    asyncio.run(three_times())
    # On a local disk the time of a file is a request of its own; a bucket's listing has it.
    assert costs[0] <= 31
    assert costs[1] == costs[2] <= 29


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (StorageStalledError("s3://secret", remedy=""), "The storage does not answer in time."),
        (ConfigurationError("host", "secret", remedy=""), "A connection is missing or wrong."),
        (RuntimeError("secret"), "The read failed."),
    ],
)
def test_a_page_shows_what_failed_without_the_errors_text(error, problem):
    assert problem_of(error).startswith(problem)
    assert "secret" not in problem_of(error)


def test_a_read_never_runs_twice_at_a_time(pool):
    begun, go_on = [], threading.Event()

    def read():
        begun.append(1)
        go_on.wait()

    shared = SharedRead(read, 0.0, pool)

    async def many():
        waiting = [asyncio.ensure_future(shared.latest(float("inf"))) for _ in range(50)]
        await asyncio.sleep(0)  # each has asked
        go_on.set()
        await asyncio.gather(*waiting)

    asyncio.run(many())
    assert begun == [1]


class Panic(BaseException):
    """What a native library raises instead of an ``Exception``."""


def test_a_panic_in_a_read_is_a_failure_and_the_next_read_starts(pool):
    outcomes = [Panic("secret"), None]

    def read():
        if error := outcomes.pop(0):
            raise error
        return "read"

    shared = SharedRead(read, 0.0, pool)

    async def twice():
        return [await shared.latest(float("inf")) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert (first.problem, first.is_late) == (problem_of(RuntimeError()), False)
    assert (second.value, second.problem) == ("read", "")


def test_a_storage_that_stalls_is_asked_less_and_less(pool, monkeypatch):
    now_s, begun, stalls = [0.0], [], 8
    monkeypatch.setattr(shared_read, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def read():
        begun.append(now_s[0])
        if len(begun) <= stalls:
            raise StorageStalledError("/t", remedy="")

    shared = SharedRead(read, 10.0, pool)

    async def half_an_hour():
        while now_s[0] < 1800:
            await shared.latest(float("inf"))
            now_s[0] += 1

    asyncio.run(half_an_hour())
    waits = [after - before for before, after in pairwise(begun)]
    assert waits[:8] == [10, 20, 40, 80, 160, 300, 300, 300]
    assert set(waits[8:]) == {10}


def test_reads_that_no_page_asks_for_are_dropped_with_their_sessions(source, lock, monkeypatch):
    shared = TableReads()
    other = TableSource("other", "/other", None, "other", is_read=False)

    async def two_pages():
        await shared.table(source)
        monkeypatch.setattr(table_reads, "KEPT_S", 0.0)
        await shared.table(other)

    asyncio.run(two_pages())
    shared._pool.shutdown()
    assert ("queue", "other") in shared._reads
    assert ("table", source) not in shared._reads
    assert [one.is_closed for one in lock.opened] == [True, False]


def test_a_read_that_runs_is_not_dropped(source, lock, monkeypatch):
    shared, go_on = TableReads(), threading.Event()
    monkeypatch.setattr(table_readers, "read_state", lambda *_, **__: go_on.wait())
    monkeypatch.setattr(table_reads, "KEPT_S", 0.0)

    async def two_pages():
        await shared.table(source, time.monotonic())
        await shared.queue("other", table_reads.page_end())

    asyncio.run(two_pages())
    go_on.set()
    assert ("table", source) in shared._reads


NOW_MS = 1_795_268_400_000
DAY_MS = table_readers.SHOWN_S * 1000
SIGNED = Bar("1", "UPSERT", Fate.COMMITTED, 0, 1, writer=Signature("me", "d", "r", "t", 1))


@pytest.mark.parametrize(
    ("started_ms", "outcome", "bars", "reading", "committed"),
    [
        (NOW_MS - 1, "", (SIGNED,), {}, True),
        (NOW_MS - 1, "", (), {}, False),
        (NOW_MS - 1, "committed", (), {}, True),  # Hudi may have archived it
        (NOW_MS - DAY_MS - 1, "", (), {}, None),
        (NOW_MS - DAY_MS - 1, "committed", (), {}, True),
        (NOW_MS - DAY_MS - 1, "job_error", (), {}, False),
        (NOW_MS - DAY_MS - 1, "misconfiguration", (), {}, None),
        (NOW_MS - DAY_MS - 1, "unknown", (), {}, None),
        (NOW_MS - 1, "", (), {"problem": "away"}, None),
        (NOW_MS - 1, "", (), {"running_s": 1.0}, None),
        (NOW_MS - 1, "", (SIGNED,), {"problem": "away"}, True),
        (NOW_MS - 1, "", (), {"value": None}, None),
        (NOW_MS - 1, "killed", (), {"value": None}, False),
        (NOW_MS - 1, "", (), None, None),
        (NOW_MS - 1, "committed", (), None, True),
    ],
)
def test_an_attempt_has_not_committed_only_if_that_is_known(
    started_ms, outcome, bars, reading, committed
):
    record = AttemptRecord(1, 2, "me", "/t", started_ms, instants=("1",), outcome=outcome)
    state = TableState("/t", NOW_MS, bars=bars)
    storage = None if reading is None else SharedValue(**{"value": state, "age_s": 1.0, **reading})
    reading = TableReading(TableSource("k", "/t"), TableState("/t", NOW_MS, queue=()), storage, None)
    (one,) = attempts_of(TaskRecord("me", attempts=(record,)), {"/t": reading})
    assert one.committed is committed
    assert one.commit == ("1" if bars else None)


def test_an_attempt_of_an_unknown_table_may_have_committed():
    record = AttemptRecord(1, 2, "me", "/t", NOW_MS)
    (one,) = attempts_of(TaskRecord("me", attempts=(record,)), {})
    assert one.committed is None


def test_a_write_keeps_its_task_once_it_is_rolled_back():
    task = Signature("", "d", "r", "t", try_number=0)
    fates = {"1": Fate.ROLLED_BACK, "2": Fate.COMMITTED}
    bars = tuple(Bar(time, "UPSERT", fate, 0, 1) for time, fate in fates.items())
    reading = TableReading(TableSource("k", "/t"), TableState("/t", 0, bars=bars), None, None)
    shown = known_table(reading, dict.fromkeys(fates, task))
    assert [one.writer for one in shown.state.bars] == [task, None]
