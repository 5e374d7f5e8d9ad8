"""What the page of all tables reads: the same counts as that of one table, by fewer requests."""

from __future__ import annotations

import asyncio
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from airflow_occ_provider.reading.overview import read_state
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.ui import paced_pool, table_readers, table_reads
from airflow_occ_provider.ui.known_tables import TableSource
from airflow_occ_provider.ui.paced_pool import PacedPool
from airflow_occ_provider.ui.table_reads import TableReads
from tests.golden.table_archive import unpack
from tests.support.patched import only_in

TABLES = Path(__file__).parents[1] / "golden" / "tables"
ARCHIVES = sorted(TABLES.glob("*/*.zip"))


@pytest.fixture
def listed(monkeypatch):
    """The folders that were listed."""
    made, real = [], TableFolder.listing

    def listing(self, name):
        made.append(name)
        return real(self, name)

    monkeypatch.setattr(TableFolder, "listing", listing)
    return made


@pytest.fixture
def source(tmp_path):
    """A table whose two pending writers are alive."""
    path = unpack(TABLES / "1.2.0" / "early_conflict.zip", tmp_path)
    for beat in path.glob(".hoodie/.heartbeat/*"):
        os.utime(beat)
    return TableSource("early", str(path))


def counts(state):
    writers = [(one.instant, one.fate, one.seen_ms) for one in state.writers]
    services = [(one.instant, one.fate, one.age_ms is None) for one in state.services]
    return writers, services, state.lost_ms, len(state.bars)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda one: f"{one.parent.name} {one.stem}")
def test_the_counts_are_the_same_without_verdicts(archive, tmp_path):
    table = HudiTable(str(unpack(archive, tmp_path)))
    judged, plain = (read_state(table, None, 0, with_verdicts=one)[0] for one in (True, False))
    assert counts(plain) == counts(judged)
    assert {one.verdict for one in plain.writers} <= {None}


def test_the_timeline_is_listed_again_only_if_a_heartbeat_is_missing(source, listed):
    table = HudiTable(source.path)
    state, seen = read_state(table, None, 0, with_verdicts=False)
    assert len(state.writers) - len(state.dead) == 2
    listed.clear()
    read_state(table, None, 0, previous=seen, with_verdicts=False)
    assert listed == [".hoodie/timeline"]
    next(Path(source.path).glob(".hoodie/.heartbeat/*")).unlink()
    listed.clear()
    state, _ = read_state(table, None, 0, previous=seen, with_verdicts=False)
    assert len(state.dead) == 1
    assert listed == [".hoodie/timeline"] * 2


def test_the_page_of_all_tables_reads_no_table_that_was_judged_in_this_period(source, monkeypatch):
    reads, real, shared = [], table_readers.read_state, TableReads()

    def read(*given, with_verdicts, **options):
        reads.append(with_verdicts)
        return real(*given, with_verdicts=with_verdicts, **options)

    monkeypatch.setattr(table_readers, "read_state", read)

    async def both():
        first = await shared.table(source, with_verdicts=False)
        judged = await shared.table(source)
        shared.start([source])
        return first, judged, await shared.table(source, with_verdicts=False)

    first, judged, later = asyncio.run(both())
    assert reads == [False, True]
    assert {one.verdict for one in first.state.writers} == {None}
    assert later.state == judged.state
    monkeypatch.setattr(table_reads, "PERIOD_S", 0.0)
    old = asyncio.run(shared.table(source, with_verdicts=False))
    assert old.state == first.state


def test_a_recent_state_is_returned_before_the_read_ends(source, monkeypatch):
    shared, real, go_on = TableReads(), table_readers.read_state, threading.Event()
    monkeypatch.setattr(table_reads, "PERIOD_S", 0.0)
    monkeypatch.setattr(table_reads, "_BRIEFLY_S", 0.0)

    async def twice():
        first = await shared.table(source, with_verdicts=False)
        monkeypatch.setattr(
            table_readers, "read_state", lambda *a, **options: go_on.wait() and real(*a, **options)
        )
        recent = await shared.table(source, with_verdicts=False)
        monkeypatch.setattr(table_reads, "_RECENT_S", 0.0)
        old = asyncio.create_task(shared.table(source, with_verdicts=False))
        await asyncio.sleep(0)
        go_on.set()
        return first, recent, await old

    first, recent, old = asyncio.run(twice())
    assert first.state == recent.state
    assert recent.storage.is_late
    assert old.state.at_ms > first.state.at_ms


def test_calls_start_one_after_the_other(monkeypatch):
    now_s, slept_s, threads = 100.0, [], []

    def call():
        threads.append(1)
        return paced_pool.time.monotonic()

    only_in(monkeypatch, paced_pool, "time", monotonic=lambda: now_s, sleep=slept_s.append)
    with PacedPool(3, 0.5, "paced") as pool:
        for done in [pool.submit(call) for _ in range(4)]:
            assert done.result() == now_s
        now_s += 60.0
        pool.submit(threads.append, 1).result()
    assert sorted(slept_s[:4]) == [0.0, 0.5, 1.0, 1.5]
    assert all(later - one == 0.5 for one, later in pairwise(sorted(slept_s[:4])))
    assert slept_s[4:] == [0.0]
    assert len(threads) == 5
