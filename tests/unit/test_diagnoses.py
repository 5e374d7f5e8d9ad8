"""What the commands say of tables that are stuck, damaged, or hold what Hudi does not check."""

from __future__ import annotations

import json
import os
import time

import pytest

from airflow_occ_provider.attempts.preparation import refuse_pending_restore
from airflow_occ_provider.errors import MetadataCorruptError, RestorePendingError
from airflow_occ_provider.hudi.conflict.verdict import Outlook, must_lose
from airflow_occ_provider.hudi.doctor.finding import Severity
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.conflicts import prospects_of
from tests.unit.commands import run_command
from tests.unit.made_table import PARTITION, MadeTable

T = "20261124{}000".format


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(params=[1, 2], ids=["layout_1", "layout_2"])
def table(request, tmp_path):
    return MadeTable(tmp_path / "t", layout=request.param)


def checks(table):
    return {one.check: one for one in examine(table.reader())}


def run(capsys, *arguments):
    run_command(*map(str, arguments))
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("action", "check", "severity"),
    [
        ("restore", "pending_restore", Severity.ERROR),
        ("rollback", "stuck_action", Severity.WARNING),
        ("clean", "stuck_action", Severity.WARNING),
        ("savepoint", "stuck_action", Severity.WARNING),
        ("indexing", "stuck_action", Severity.WARNING),
    ],
)
@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_every_pending_action_that_no_process_continues_is_found(table, action, check, severity, state):
    table.write(T("100000"), T("100010"), "a")
    table.put(f"{T('110000')}.{action}.requested", {"version": 1}, at=T("110000"))
    if state == "inflight":
        table.put(f"{T('110000')}.{action}.inflight", at=T("110001"))
    (found,) = checks(table).values()
    assert (found.check, found.severity, found.instants) == (check, severity, (T("110000"),))
    assert found.remedy


def test_an_action_that_has_just_begun_is_not_stuck_but_a_restore_is_told_at_once(table):
    table.write(T("100000"), T("100010"), "a")
    for action in ("rollback", "clean", "indexing"):
        file = table.put(f"{T('110000')}.{action}.requested", {"version": 1}, at=T("110000"))
        os.utime(file)
        assert not checks(table), action
        file.unlink()
    os.utime(table.put(f"{T('110000')}.restore.requested", {"version": 1}, at=T("110000")))
    assert set(checks(table)) == {"pending_restore"}


def test_a_rollback_whose_victim_is_gone_says_that_nothing_continues_it(table):
    table.write(T("100000"), T("100010"), "a")
    plan = {"instantToRollback": {"commitTime": T("090000"), "action": "commit"}}
    table.put(f"{T('110000')}.rollback.requested", plan, at=T("110000"))
    found = checks(table)["stuck_action"]
    assert f"{T('090000')}, which has left the timeline" in found.evidence
    assert f"delete {T('110000')}.rollback.requested" in found.remedy


def test_no_driver_starts_while_a_restore_is_pending(table):
    table.write(T("100000"), T("100010"), "a")
    refuse_pending_restore(table.reader().snapshot())
    table.put(f"{T('110000')}.restore.requested", {"version": 1}, at=T("110000"))
    with pytest.raises(RestorePendingError, match=T("110000")) as raised:
        refuse_pending_restore(table.reader().snapshot())
    assert raised.value.retry
    assert "rollback_to_savepoint" in raised.value.remedy


def test_writers_shows_pending_actions_too(table, capsys):
    table.put(f"{T('110000')}.rollback.requested", {"version": 1}, at=T("110000"))
    (shown,) = json.loads(run(capsys, "writers", table.path, "-o", "json"))
    assert (shown["time"], shown["action"], shown["heartbeat"]) == (T("110000"), "rollback", "none")


@pytest.mark.parametrize("action", ["commit", "replacecommit", "clean", "rollback", "savepoint"])
@pytest.mark.parametrize("content", ["", '{"version": 1, "partit'], ids=["empty", "half"])
def test_a_damaged_file_is_a_finding_and_hides_nothing(table, capsys, action, content):
    table.write(T("100000"), T("100010"), "a")
    stamp = f"_{T('110010')}" if table.layout == 2 else ""
    table.put(f"{T('110000')}{stamp}.{action}", content, at=T("110010"))
    table.write(T("120000"), T("120010"), "b")
    found = checks(table)
    assert set(found) == {"damaged_file"}
    assert found["damaged_file"].severity is Severity.ERROR
    assert found["damaged_file"].instants == (T("110000"),)
    assert ("is empty" if not content else "cannot be decoded") in found["damaged_file"].evidence
    shown = json.loads(run(capsys, "timeline", table.path, "-o", "json"))
    assert [one["time"] for one in shown] == [T("100000"), T("110000"), T("120000")]


@pytest.mark.parametrize("content", ["", '{"version": 1, "partit'], ids=["empty", "half"])
def test_a_damaged_plan_is_a_finding_once_it_is_old(table, content):
    table.write(T("100000"), T("100010"), "a")
    file = table.put(f"{T('110000')}.compaction.requested", content, at=T("110000"))
    assert checks(table)["damaged_file"].instants == (T("110000"),)
    os.utime(file)
    assert "damaged_file" not in checks(table)  # it may still be written


def test_a_writer_still_fails_at_a_damaged_commit(table):
    stamp = f"_{T('110010')}" if table.layout == 2 else ""
    table.put(f"{T('110000')}{stamp}.commit", at=T("110010"))
    snapshot = table.reader().snapshot()
    with pytest.raises(MetadataCorruptError, match="is empty"):
        snapshot.reader.commit(snapshot.timeline.find(T("110000")))


OVERWRITE = "INSERT_OVERWRITE"


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        ({"operation": "UPSERT"}, {"operation": "UPSERT"}, True),
        ({"operation": "INSERT"}, {"operation": "INSERT"}, True),
        ({"operation": "BULK_INSERT"}, {"operation": "UPSERT"}, True),
        ({"operation": "BULK_INSERT"}, {"operation": "BULK_INSERT"}, False),  # neither looks for keys
        ({"operation": OVERWRITE}, {"operation": OVERWRITE}, True),
        ({"operation": OVERWRITE}, {"operation": "UPSERT"}, False),  # as if they ran in turn
        ({"operation": "UPSERT"}, {"operation": "UPSERT", "partition": "p2"}, False),
        ({"operation": OVERWRITE}, {"operation": OVERWRITE, "partition": "p2"}, False),
        ({"operation": "UPSERT"}, {"operation": "UPSERT", "bases": {"b": T("090000")}}, False),
    ],
)
def test_overlaps_that_hudi_allows_are_told_where_rows_may_be_there_twice(table, first, second, is_told):
    table.write(T("090000"), T("090010"), "b")
    table.write(T("100000"), T("100030"), "a", **first)
    table.write(T("100010"), T("100040"), "b" if "bases" in second else "c", **second)
    found = checks(table)
    assert set(found) == ({"possible_duplicates"} if is_told else set())
    if is_told:
        assert found["possible_duplicates"].instants == (T("100000"), T("100010"))
        assert found["possible_duplicates"].severity is Severity.WARNING


@pytest.mark.parametrize("operation", ["UPSERT", OVERWRITE])
def test_writes_one_after_the_other_are_no_duplicates(table, operation):
    table.write(T("100000"), T("100030"), "a", operation=operation)
    table.write(T("100032"), T("100050"), "b", operation=operation)
    assert not checks(table)


def test_three_overlapping_writers_are_one_finding(table):
    for place, group in enumerate("abc"):
        table.write(T(f"10001{place}"), T(f"10003{place}"), group)
    found = checks(table)["possible_duplicates"]
    assert found.instants == (T("100010"), T("100011"), T("100012"))


def test_a_table_without_record_keys_has_no_duplicates(tmp_path):
    table = MadeTable(tmp_path / "t", table__recordkey__fields="")
    table.write(T("100000"), T("100030"), "a")
    table.write(T("100010"), T("100040"), "c")
    assert not checks(table)


def test_copied_files_do_not_hide_an_overlap_that_the_names_show(tmp_path):
    table = MadeTable(tmp_path / "t", layout=2)
    table.write(T("100000"), T("100030"), "a")
    table.write(T("100010"), T("100040"), "c")
    for file in table.timeline.iterdir():
        file.touch()
    assert checks(table)["possible_duplicates"].instants == (T("100000"), T("100010"))


@pytest.mark.parametrize("operation", ["UPSERT", OVERWRITE])
def test_two_pending_writes_that_may_both_add_rows_are_not_simply_safe(table, capsys, operation):
    table.write(T("100000"), None, "a", operation=operation)
    table.write(T("100010"), None, "c", operation=operation)
    for one in ("100000", "100010"):
        table.tick(T(one))
    shown = json.loads(run(capsys, "conflicts", table.path, "-o", "json"))
    assert [one["duplicates"][0]["rival"] for one in shown] == [T("100010"), T("100000")]
    assert all("duplicates are possible" in one["duplicates"][0]["reason"] for one in shown)
    if operation == OVERWRITE:
        assert {one["verdict"] for one in shown} == {"unchecked"}


def pending_updates(table, number, *, live=True):
    table.write(T("090000"), T("090010"), "a")
    times = [T(f"10{place // 60:02}{place % 60:02}") for place in range(number)]
    for each in times:
        table.write(each, None, "a", bases={"a": T("090000")})
        if live:
            table.tick(each)
    return times


def test_of_many_writes_of_one_file_group_one_can_commit(table, capsys):
    times = pending_updates(table, 30)
    found = prospects_of(table.reader(), table.reader().snapshot())
    assert {one.outlook for one in found} == {Outlook.CONTESTED}
    assert must_lose(found) == 29
    shown = json.loads(run(capsys, "conflicts", table.path, "-o", "json"))
    assert [one["time"] for one in shown] == times
    assert {(one["contest"]["writes"], one["rivals"]["certain"]) for one in shown} == {(30, 29)}
    assert max(len(one["conflicts"]) for one in shown) <= 5
    assert "30 pending writes: 1 can still commit, 29 must lose." in run(capsys, "conflicts", table.path)


def test_a_write_that_lost_to_a_completed_one_is_out_of_the_contest(table):
    first, second, third = pending_updates(table, 3)
    table.write(T("100100"), T("100130"), "a", bases={"a": T("090000")})
    found = prospects_of(table.reader(), table.reader().snapshot())
    assert [(one.write.instant.time, one.outlook) for one in found] == [
        (each, Outlook.LOSES) for each in (first, second, third)
    ]
    assert must_lose(found) == 3


def test_dead_writes_are_said_to_be_dead_and_are_no_rivals(table, capsys):
    pending_updates(table, 3, live=False)
    table.write(T("110000"), None, "a", bases={"a": T("090000")})
    table.tick(T("110000"))
    *dead, living = json.loads(run(capsys, "conflicts", table.path, "-o", "json"))
    assert {(one["verdict"], one["outlook"], len(one["conflicts"])) for one in dead} == {
        ("dead",) * 2 + (0,)
    }
    assert (living["outlook"], living["conflicts"]) == ("open", [])
    assert "1 pending writes: 1 can still commit, 0 must lose; 3 more are dead." in run(
        capsys, "conflicts", table.path
    )


def test_a_completed_rival_adds_nothing_more(table, capsys):
    table.write(T("090000"), T("090010"), "a")
    table.write(T("100000"), None, "c")
    table.tick(T("100000"))
    table.write(T("100010"), T("100030"), "a", bases={"a": T("090000")})
    (shown,) = json.loads(run(capsys, "conflicts", table.path, "-o", "json"))
    (conflict,) = shown["conflicts"]
    assert conflict["reason"] == "our new records may still go to a small file that it wrote"


@pytest.mark.parametrize(("pairs", "severity"), [(2, Severity.NOTICE), (8, Severity.ERROR)])
def test_rollbacks_at_every_start_are_one_error(tmp_path, pairs, severity):
    table = MadeTable(tmp_path / "t")
    for place in range(pairs):
        at = f"10{2 * place:02}"
        victim = {"instantsRollback": [{"commitTime": T(f"{at}00"), "action": "commit"}]}
        table.put(f"{T(f'{at}20')}.rollback.requested", victim, at=T(f"{at}20"))
        table.put(f"{T(f'{at}20')}.rollback", victim, at=T(f"{at}21"))
        table.write(T(f"{at}22"), T(f"{at}50"), f"g{place}")
    found = [one for one in examine(table.reader()) if one.check == "eager_cleaner"]
    assert len(found) == (1 if severity is Severity.ERROR else pairs)
    assert {one.severity for one in found} == {severity}
    if severity is Severity.ERROR:
        assert T("100000") in found[0].instants
        assert "8 times" in found[0].evidence


def test_data_files_that_no_commit_names_are_found_without_markers(table):
    table.write(T("100000"), T("100010"), "a")
    old = f"x_0-1-2_{T('090000')}.parquet"
    twin = f"a_0-9-9_{T('100000')}.parquet"
    later = f"y_0-1-2_{T('110000')}.parquet"
    for name in (old, twin, later, ".hoodie_partition_metadata", f".a_{T('090000')}.log.1_0-1-2"):
        (table.path / PARTITION / name).write_bytes(b"PAR1")
    found = {one.instants[0]: one for one in examine(table.reader())}
    assert {one.check for one in found.values()} == {"unnamed_files"}
    assert old in found[T("090000")].evidence
    assert twin in found[T("100000")].evidence
    assert "readers do not see them yet" in found[T("110000")].evidence


@pytest.mark.parametrize(("hours", "is_told"), [(2, True), (0, False)])
def test_a_lock_file_that_stays_is_found(table, hours, is_told):
    table.write(T("100000"), T("100010"), "a")
    lock = table.path / ".hoodie" / "lock"
    lock.touch()
    at_s = time.time() - hours * 3600
    os.utime(lock, (at_s, at_s))
    assert set(checks(table)) == ({"held_lock"} if is_told else set())
