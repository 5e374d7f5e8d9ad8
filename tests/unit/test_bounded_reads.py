"""How many requests and threads a look takes, however much dead matter a table has."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from airflow_occ_provider.attempts.rivals import find_elders
from airflow_occ_provider.attempts.waits import WriteStates
from airflow_occ_provider.errors import StorageStalledError
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE
from airflow_occ_provider.storage import folder
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.table import HudiTable
from tests.unit.made_table import PARTITION, MadeTable

T = "20261124{}000".format


@pytest.fixture
def requests(monkeypatch):
    made, ask = Counter(), TableFolder.ask

    def counted(self, name, call):
        made[name.rpartition(".")[2]] += not folder._in_request()
        return ask(self, name, call)

    monkeypatch.setattr(TableFolder, "ask", counted)
    return made


def pending(table, number):
    for place in range(number):
        at = T(f"10{place // 60:02}{place % 60:02}")
        table.write(at, None, "a", bases={"a": T("090000")})


def test_preflight_reads_nothing_of_dead_writes(tmp_path, requests):
    totals = []
    for number in (1, 200):
        table = MadeTable(tmp_path / str(number), layout=2)
        pending(table, number)
        table.write(T("120000"), None, "a", bases={"a": T("090000")})
        table.tick(T("120000"))
        requests.clear()
        reader = table.reader()
        (elder,) = find_elders(reader, reader.snapshot(), [PARTITION], (), DEFAULT_RULE)
        assert elder.instant == T("120000")
        totals.append(sum(requests.values()))
    assert totals[0] == totals[1] < 20


def test_the_state_of_a_table_reads_each_rollback_once_and_several_at_once(tmp_path, requests):
    table = MadeTable(tmp_path / "t")
    for place in range(100):
        at = T(f"10{place // 60:02}{place % 60:02}")
        victim = {"commitsRollback": [f"{int(at) - 1}"]}
        table.put(f"{at}.rollback", victim, at=at)
    reader = table.reader()
    snapshot = reader.snapshot()
    requests.clear()
    state = WriteStates.at(snapshot, 0, DEFAULT_RULE)
    assert len(state.over) == 100
    assert requests["rollback"] == 100
    requests.clear()
    assert WriteStates.at(reader.snapshot(snapshot), 0, DEFAULT_RULE).over == state.over
    assert requests["rollback"] == 0


def test_a_reader_keeps_the_youngest_large_commits_only(tmp_path, monkeypatch, requests):
    monkeypatch.setattr("airflow_occ_provider.storage.instant_reader._MOST_GROUPS_KEPT", 250)
    table = MadeTable(tmp_path / "t")
    groups = [f"g{number}" for number in range(100)]
    for at in ("100000", "110000", "120000"):
        table.write(T(at), f"{int(T(at)) + 10_000}", *groups)
    reader = table.reader()
    snapshot = reader.snapshot()
    for one in snapshot.timeline.completed_writes():
        snapshot.reader.commit(one)
    for _ in range(3):
        snapshot = reader.snapshot(snapshot)
    requests.clear()
    read = [
        (snapshot.reader.commit(one), requests["commit"])[1]
        for one in reversed(snapshot.timeline.instants)
    ]
    assert read == [0, 0, 1]


def test_a_storage_that_hangs_keeps_a_limited_number_of_threads(tmp_path, monkeypatch):
    MadeTable(tmp_path / "t")
    answer = threading.Event()
    table = HudiTable(str(tmp_path / "t"), timeout_s=0.01)
    read = table.files.file_system.cat_file
    monkeypatch.setattr(
        table.files.file_system,
        "cat_file",
        lambda *given, **more: (answer.wait(), read(*given, **more))[1],
    )
    before = set(threading.enumerate())
    for _ in range(3 * folder._MOST_ABANDONED):
        with pytest.raises(StorageStalledError):
            table.files.read(".hoodie/hoodie.properties")
    stalled = set(threading.enumerate()) - before
    assert len(stalled) == folder._MOST_ABANDONED
    answer.set()
    for thread in stalled:
        thread.join()
    assert HudiTable(str(tmp_path / "t")).files.read(".hoodie/hoodie.properties")
