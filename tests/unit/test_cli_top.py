"""``airflow hudi top``, on tables that real Hudi wrote, over a queue in memory."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from airflow.cli.cli_parser import get_parser
from rich.console import Console

from airflow_occ_provider.cli import top
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.reading.described import describe
from airflow_occ_provider.reading.table_state import Bar, TableState
from airflow_occ_provider.storage.folder import TableFolder
from tests.golden.table_archive import unpack
from tests.support.memory_store import MemoryStore
from tests.support.patched import only_in

TABLES = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"
LONG = "10000000"


@pytest.fixture
def run(capsys):
    def run(*arguments):
        args = get_parser().parse_args(["hudi", "top", "--minutes", LONG, *arguments])
        args.func(args)
        return capsys.readouterr().out

    return run


@pytest.fixture
def table(tmp_path):
    return str(unpack(TABLES / "early_conflict.zip", tmp_path))


@pytest.fixture
def queue(monkeypatch):
    nodes = MemoryStore(now_ms=lambda: 1_795_288_900_000)
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", "hudi-zookeeper-lock://zk:1")
    monkeypatch.setattr(HudiZookeeperLockHook, "leases", lambda self: Queue(nodes))
    return Queue(nodes)


def ask(queue, table, name):
    owner = Owner(("dag", "run", f"task_{name}", "-1"))
    queue.request(Request(name, owner, (Scope.of(table, None),), 60_000))


def test_it_shows_the_writers_the_queue_and_the_dead_writers(run, table, queue):
    ask(queue, table, "first")
    ask(queue, table, "second")
    shown = run(table, "--lock-conn-id", "lock", "--output", "plain")
    assert "May lose to" in shown
    assert "dead, expired" in shown
    assert "task_first" in shown.split("waits for", 1)[1]
    found = json.loads(run(table, "--lock-conn-id", "lock", "--output", "json"))
    assert [line["holds"] for line in found["queue"]] == [True, False]
    assert [one["fate"] for one in found["writers"]] == ["dead", "dead"]
    assert [one["fate"] for one in found["instants"]] == ["committed", "dead", "dead"]


def test_without_a_lock_connection_the_queue_is_not_asked_for(run, table):
    found = json.loads(run(table, "--output", "json"))
    assert found["queue"] is None
    assert "Queue" not in run(table)


def test_a_range_bounds_what_has_ended(run, table):
    found = json.loads(run(table, "--minutes", "1", "--output", "json"))
    assert [one["fate"] for one in found["instants"]] == ["dead", "dead"]


@pytest.fixture
def screens(monkeypatch):
    screens = []

    def shown(self, renderable, *, refresh):
        console = Console(width=100, record=True, file=io.StringIO(), markup=False)
        console.print(renderable)
        screens.append(console.export_text())

    monkeypatch.setattr(top.Live, "update", shown)
    return screens


def interrupt_at(monkeypatch, ends):
    def slept(_):
        if ends():
            raise KeyboardInterrupt

    only_in(monkeypatch, top, "time", sleep=slept)


def test_in_a_terminal_it_goes_on_and_says_why_there_is_no_newer_state(monkeypatch, screens):
    lost = Bar("1", "UPSERT", Fate.ROLLED_BACK, 0, 5000)
    reads = [
        (describe(TableState("/t", 0, bars=(lost,))), None),
        TableUnreadableError("the storage did not answer [red]"),
    ]

    def read(previous):
        found = reads.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    interrupt_at(monkeypatch, lambda: not reads)
    top._watch(read, 10)
    first, second = screens
    assert "5 s" in first
    assert "the storage did not answer [red]" in second
    assert "/t" in second


def test_an_interrupt_during_a_read_ends_it_without_an_error(screens):
    def read(previous):
        raise KeyboardInterrupt

    top._watch(read, 10)
    assert screens == []


def test_in_a_terminal_it_reads_the_properties_of_the_table_once(run, table, monkeypatch, screens):
    asked, read = [], TableFolder.read
    monkeypatch.setattr(TableFolder, "read", lambda f, n: (asked.append(n), read(f, n))[1])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    interrupt_at(monkeypatch, lambda: len(screens) == 3)
    run(table)
    assert len(screens) == 3
    assert asked.count(".hoodie/hoodie.properties") == 1


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf", "soon"])
def test_the_pause_between_two_reads_is_positive(run, capsys, every):
    with pytest.raises(SystemExit) as caught:
        run("/t", f"--every={every}")
    assert caught.value.code == 2
    assert f"argument --every: {every!r} is not a positive number" in capsys.readouterr().err


def test_the_hook_says_the_same(run, table, queue):
    ask(queue, table, "first")
    told = describe(HudiTableHook(table).overview("lock", minutes=float(LONG)))
    shown = json.loads(run(table, "--lock-conn-id", "lock", "--output", "json"))
    for one in (told, shown):
        one.pop("at_ms")
        for writer in one["writers"]:
            writer.pop("margin_ms")
    assert told == shown
    assert len(told["queue"]) == 1
