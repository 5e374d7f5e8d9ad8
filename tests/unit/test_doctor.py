"""What ``airflow hudi doctor`` finds, also in tables that unsafe writers made with real Hudi."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor import commits, unseen, writers
from airflow_occ_provider.hudi.doctor.finding import Severity, is_original
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import elapsed_ms, naive_ms
from airflow_occ_provider.hudi.format.properties import parse_defaults
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE
from airflow_occ_provider.hudi.writer.table_options import table_options
from airflow_occ_provider.reading import doctor
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.unit.commands import run_command
from tests.unit.timed_writes import DAY, checks, instant, write

FOLDER = Path(__file__).parents[1] / "golden" / "tables"
TABLES = sorted(path.relative_to(FOLDER).with_suffix("") for path in FOLDER.glob("*/*.zip"))
# What the recorded tables truly have; all others have nothing.
EXPECTED = {
    "bucket_index": {"dead_writers"},
    "cleaned": {"stuck_action"},  # a clean that was planned, and never run
    "clustering": {"stuck_service"},
    "compaction": {"stuck_service"},
    "early_conflict": {"dead_writers"},
    "indexed": {"damaged_metadata_table"},  # it was recorded without that table
    "live_direct": {"dead_writers", "leftover_heartbeat"},
    "lost_writes": {"dead_writers", "no_heartbeat"},
    "live_server": {"dead_writers"},
    "log_compaction": {"stuck_service"},
    "operations": {"unsigned_writes"},
    "plain_odd_paths": {"dead_writers"},
    "rollbacks": {"dead_writers", "eager_cleaner", "stuck_action"},
    "rolled_back_alive": {"eager_cleaner", "leftover_heartbeat"},
    "unchecked": {"unchecked_commit"},
    "upgraded": {"stuck_service", "leftover_heartbeat", "unsigned_writes"},
    "version_6": {"stuck_service", "dead_writers", "unsigned_writes", "eager_cleaner"},
}
# Later releases remove the heartbeat of a write that failed.
ONLY_IN = {
    **{one: {"leftover_heartbeat": "0.15.0"} for one in ("live_direct", "rolled_back_alive")},
    "lost_writes": {"dead_writers": "0.15.0", "no_heartbeat": "1.0.2 1.1.1 1.2.0"},
}
HOUR_MS = 3_600_000
T10 = f"{DAY}100000000"
REQUESTED_AND_DONE = (".deltacommit.requested", ".deltacommit.inflight", ".deltacommit")


@pytest.fixture(params=TABLES, ids=str)
def golden(request, tmp_path, monkeypatch):
    said = json.loads((FOLDER / f"{request.param}.json").read_text())
    monkeypatch.setenv("TZ", said["local_zone"])
    time.tzset()
    tomorrow_ms = round(time.time() * 1000) + 24 * HOUR_MS  # tables may have been recorded today
    monkeypatch.setattr(doctor, "_now_ms", lambda: tomorrow_ms)
    yield request.param.name, HudiTable(str(unpack(FOLDER / f"{request.param}.zip", tmp_path)))
    monkeypatch.undo()
    time.tzset()


def test_the_golden_tables_have_what_their_writers_did_and_nothing_else(golden, request):
    name, table = golden
    version = str(request.node.callspec.params["golden"].parent)
    by_release = ONLY_IN.get(name, {})
    expected = {one for one in EXPECTED.get(name, set()) if version in by_release.get(one, version)}
    assert {one.check for one in examine(table)} == expected


@pytest.mark.parametrize("version", HUDI_RELEASES)
def test_two_writers_without_a_check_are_found(version, tmp_path):
    table = HudiTable(str(unpack(FOLDER / version / "unchecked.zip", tmp_path)))
    (found,) = examine(table)
    *_, first, second = (one.time for one in table.snapshot().timeline.completed_writes())
    assert (found.check, found.severity) == ("unchecked_commit", Severity.ERROR)
    assert found.instants == (first, second)
    assert f"{second} completed while {first} was writing the same file groups (p1/" in found.evidence
    assert "OPTIMISTIC_CONCURRENCY_CONTROL" in found.remedy


@pytest.mark.parametrize("version", HUDI_RELEASES)
def test_the_rollback_of_a_live_writer_names_the_write_that_made_it(version, tmp_path):
    table = HudiTable(str(unpack(FOLDER / version / "rolled_back_alive.zip", tmp_path)))
    (found,) = (one for one in examine(table) if one.check == "eager_cleaner")
    ((rollback, victims),) = table.snapshot().rollbacks()
    assert found.instants == (*victims, rollback.time)
    assert found.severity is Severity.NOTICE
    culprit = table.snapshot().timeline.completed_writes()[-1].time
    assert f"the write {culprit} was requested at once" in found.evidence
    assert "=LAZY" in found.remedy


def test_a_table_that_was_copied_proves_no_unchecked_commit(tmp_path):
    path = unpack(FOLDER / "1.2.0" / "unchecked.zip", tmp_path)
    for file in (path / ".hoodie" / "timeline").iterdir():
        file.touch()
    assert examine(HudiTable(str(path))) == ()


def test_only_writes_that_overlap_in_time_and_in_files_were_unchecked():
    long, short = write("100000", "110000", "a", "b"), write("101000", "102000", "b")
    assert checks(commits.unchecked_commits([long, short])) == ["unchecked_commit"]
    assert not checks(commits.unchecked_commits([long, write("101000", "102000", "c")]))
    assert not checks(commits.unchecked_commits([long, write("111000", "112000", "b")]))
    service = ConcurrentOperation(short.instant, "COMPACT", short.file_groups, completed_ms=1)
    assert not checks(commits.unchecked_commits([long, service]))


def test_files_that_are_not_as_old_as_their_names_are_not_original():
    one = write("100000", "110000")
    ended_ms = one.completed_ms
    assert is_original(one)
    assert is_original(write("100000", "110000", zone_ms=HOUR_MS, late_ms=500))
    assert not is_original(replace(one, requested_ms=ended_ms, inflight_ms=ended_ms))
    assert not is_original(replace(one, requested_ms=ended_ms + 1))
    assert not is_original(replace(one, inflight_ms=None))
    assert not is_original(write("100000", "100002"))  # too short to tell
    assert not is_original(write("100000", "110000", zone_ms=20 * HOUR_MS))  # no zone is that far
    assert not is_original(write("100000", "110000", late_ms=300_000))  # no writer is that slow
    assert naive_ms("00000000000001") is None  # of a bootstrap
    assert elapsed_ms("00000000000001", one.instant.time) is None
    bootstrap = replace(one, instant=one.instant._replace(time="00000000000001"))
    assert not is_original(bootstrap)


def test_times_that_no_common_lock_gives():
    same = [instant("100000", "110000", ms="123"), instant("103000", "110000", ms="123")]
    (found,) = commits.completion_times([*same, instant("104000", "110001")])
    assert (found.check, found.instants) == ("equal_completion_times", (same[0].time, same[1].time))
    upgraded = [instant("100000", "110000"), instant("103000", "110000"), instant("110001", "110000")]
    assert not checks(commits.completion_times(upgraded))  # from files, in whole seconds
    (found,) = commits.completion_times([instant("120000", "110000")])
    assert (found.check, found.instants) == ("backward_completion_time", (f"{DAY}120000000",))
    beside = [instant("100000", "110000"), instant("100000", "110500", "clean")]
    assert checks(commits.colliding_instants(beside)) == ["colliding_instants"]
    saved = [instant("100000", "110000"), instant("100000", "110500", "savepoint")]
    assert not checks(commits.colliding_instants(saved))


def test_zones_by_turns_are_found_and_one_change_for_good_is_not():
    india = 11 * HOUR_MS // 2
    turns = [
        write("100000", "100500"),
        write("163000", "163500", zone_ms=india),  # an hour later
        write("120000", "120500"),
    ]
    (found,) = commits.time_zones(turns)
    assert (found.check, found.severity) == ("time_zones", Severity.ERROR)
    assert found.instants == (turns[1].instant.time,)
    assert "UTC+00:00" in found.evidence
    assert "UTC+05:30" in found.evidence
    summer = [
        write("100000", "100500"),
        write("110000", "110500"),
        write("130000", "130500", zone_ms=HOUR_MS),
    ]
    assert not checks(commits.time_zones(summer))
    winter = write("143000", "143500")
    assert not checks(commits.time_zones([*summer, winter]))
    planned = replace(turns[1], operation_type="COMPACT")
    assert not checks(commits.time_zones([turns[0], planned, turns[2]]))


def test_a_clock_ahead_of_the_storages_is_found():
    sound = [write("100000", "100500", late_ms=800), write("110000", "110500", late_ms=-900)]
    assert not checks(commits.fast_clocks(sound))
    (found,) = commits.fast_clocks([*sound, write("120000", "120500", late_ms=-45_000)])
    assert found.instants == (f"{DAY}120000000",)
    assert "1 of 3 writers were ahead of the storage's by up to 45.0 s" in found.evidence


def commit(signed=False, fields=None, operation="UPSERT"):
    extra = {"_airflow_identity": "a"} if signed else {}
    return CommitMetadata(operation, extra=extra, stat_fields=fields)


def test_unsigned_writes_are_found_only_beside_signed_ones():
    times = [instant(f"1{n}0000", f"1{n}0500") for n in range(3)]
    ours, theirs, service = commit(signed=True), commit(), commit(operation="COMPACT")
    assert not checks(writers.unsigned_writes(dict(zip(times, (theirs, theirs, service), strict=True))))
    assert not checks(writers.unsigned_writes(dict(zip(times, (ours, ours, service), strict=True))))
    (found,) = writers.unsigned_writes(dict(zip(times, (ours, theirs, service), strict=True)))
    assert (found.instants, found.severity) == ((times[1].time,), Severity.NOTICE)
    assert "from table version 10 on" in found.remedy


def test_releases_that_write_by_turns_are_found():
    times = [instant(f"1{n}0000", f"1{n}0500") for n in range(3)]
    old, new = frozenset({"fileId"}), frozenset({"fileId", "prevBaseFile", "totalLogBlocksSize"})
    turns = dict(zip(times, map(commit, (False,) * 3, (old, new, old)), strict=True))
    (found,) = writers.mixed_releases(6, turns)
    assert found.evidence.endswith("0.15; 1.2")
    assert found.instants == (times[1].time, times[2].time)
    upgrade = dict(zip(times, map(commit, (False,) * 3, (old, new, new)), strict=True))
    assert not checks(writers.mixed_releases(6, upgrade))
    assert not checks(writers.mixed_releases(8, turns))


def test_several_kinds_of_markers_are_found():
    (found,) = writers.mixed_markers({"1": "DIRECT", "2": "TIMELINE_SERVER_BASED"})
    assert "DIRECT: 1; TIMELINE_SERVER_BASED: 2" in found.evidence
    assert not checks(writers.mixed_markers({"1": "DIRECT", "2": "DIRECT"}))


def test_what_keeps_instants_from_the_archive_is_found():
    done = [instant(f"1{n}0000", f"1{n}0500") for n in range(5)]
    (found,) = writers.held_back_archival(done, [instant("100100")], 3)
    assert (found.check, found.instants) == ("archival_held_back", (f"{DAY}100100000",))
    assert not checks(writers.held_back_archival(done, [instant("100100")], 4))
    assert not checks(writers.held_back_archival(done, [], 0))


def test_a_plan_is_stuck_only_after_hours_without_a_heartbeat():
    plan = ConcurrentOperation(instant("100000", action="clustering"), "CLUSTER", requested_ms=1000)
    none, alive = DEFAULT_RULE.judge(None, 0), DEFAULT_RULE.judge(7 * HOUR_MS, 7 * HOUR_MS)
    (found,) = writers.stuck_services([(plan, none)], 7 * HOUR_MS, 6 * HOUR_MS)
    assert "has not moved for 7 h: it rejects updates" in found.evidence
    assert "HudiClusteringOperator" in found.remedy
    assert not checks(writers.stuck_services([(plan, alive)], 7 * HOUR_MS, 6 * HOUR_MS))
    assert not checks(writers.stuck_services([(plan, none)], 5 * HOUR_MS, 6 * HOUR_MS))


def rolled_back(victim, at="100010", ended="100011"):
    one = instant(at, ended, "rollback")
    times = {"requested_ms": naive_ms(one.time), "completed_ms": naive_ms(one.completion_time)}
    return commits.SeenRollback(ConcurrentOperation(one, **times), frozenset({victim.time}))


def test_a_victim_that_committed_or_ticks_was_alive():
    done, ticking = instant("100000", "100500"), instant("100001")
    timeline = Timeline((done, ticking))
    beats = {ticking: DEFAULT_RULE.judge(1000, 2000)}
    (found,) = commits.eager_rollbacks(timeline, [rolled_back(done)], {})
    assert (found.severity, found.instants[0]) == (Severity.ERROR, done.time)
    assert "which has completed: its writer was alive" in found.evidence
    again = commits.eager_rollbacks(timeline, [rolled_back(done)], {}, {done.time})
    assert not checks(again)  # a table service that ran again
    (found,) = commits.eager_rollbacks(timeline, [rolled_back(ticking)], beats)
    assert "which renews its heartbeat" in found.evidence
    assert not checks(commits.eager_rollbacks(timeline, [rolled_back(instant("095900"))], beats))


def test_an_early_rollback_is_found_only_right_before_a_write_and_not_after_a_commit():
    victim, culprit = instant("100000"), write("100012", "100030")
    timeline = Timeline((culprit.instant,))

    def found(*others, seen=None, culprit=culprit):
        seen = seen or rolled_back(victim)
        return checks(commits.hasty_rollbacks(timeline, [seen], [culprit, *others], DEFAULT_RULE))

    assert found() == ["eager_cleaner"]
    assert not found(culprit=write("100300", "100500"))
    assert not found(write("095900", "100008"))  # whose lazy clean it may be
    assert found(write("095900", "095950")) == ["eager_cleaner"]
    assert not found(seen=rolled_back(instant("095000")))


@pytest.fixture
def run(capsys):
    def run(*arguments, code=0):
        run_command(*arguments, code=code)
        return capsys.readouterr().out

    return run


def test_the_command_prints_findings_and_its_exit_code_says_if_they_are_bad(run, tmp_path):
    table = str(unpack(FOLDER / "1.2.0" / "unchecked.zip", tmp_path))
    (found,) = json.loads(run("doctor", table, "-o", "json", code=3))
    assert list(found) == ["check", "severity", "instants", "evidence", "remedy"]
    for form in ("table", "plain", "yaml"):
        printed = run("doctor", table, "-o", form, code=3)
        assert "unchecked_commit" in printed
        assert found["instants"][0] in printed


def test_the_command_says_that_a_sound_table_has_nothing(run, tmp_path):
    table = str(unpack(FOLDER / "1.2.0" / "created.zip", tmp_path))
    assert run("doctor", table) == "No finding: the table shows no unsafe writer.\n"
    assert json.loads(run("doctor", table, "-o", "json")) == []


def test_another_program_is_given_the_options_of_our_writers(run, monkeypatch, tmp_path):
    lock = {
        "conn_type": "hudi_zookeeper_lock",
        "host": "zk1:2181,zk2:2181",
        "extra": {"base_path": "/locks"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(lock))
    asked = ("conf", str(tmp_path / "trips"), "--lock-conn-id", "lock")
    told = json.loads(run(*asked, "-o", "json"))
    assert told["hoodie.write.concurrency.mode"] == "OPTIMISTIC_CONCURRENCY_CONTROL"
    assert told["hoodie.cleaner.policy.failed.writes"] == "LAZY"
    assert told["hoodie.write.lock.zookeeper.url"] == "zk1:2181,zk2:2181"
    printed = run(*asked)
    assert f"a program that writes {tmp_path}/trips beside HudiWriteOperator" in printed
    read = parse_defaults(printed)
    assert dict(read) == told
    assert "hoodie.write.lock.zookeeper.url" in run(*asked, "-o", "plain")
    assert "alone" not in printed
    lock = {"conn_type": "hudi_metastore_lock", "host": "thrift://hms1:9083"}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(lock))
    assert "use these for this table\n# alone" in run(*asked)


def rebuilt(at, ended, base, *groups):
    """A write of base files, with what it was built on."""
    files = frozenset(("p", group) for group in groups)
    done = replace(write(at, ended, *groups), based=files)
    return done, {done.instant: CommitMetadata("UPSERT", files, bases=dict.fromkeys(files, base))}


def overwritten(*changes):
    written = {instant: metadata for _, commit in changes for instant, metadata in commit.items()}
    return list(unseen.overwritten_commits([change for change, _ in changes], written))


def test_a_write_that_was_built_on_files_from_before_another_one_has_overwritten_it():
    first, second = rebuilt("100000", "100500", "null", "a"), rebuilt("101000", "101500", T10, "a")
    (finding,) = overwritten(first, second, rebuilt("102000", "102500", T10, "a"))
    assert (finding.check, finding.severity) == ("overwritten_commit", Severity.ERROR)
    assert finding.instants == (f"{DAY}101000000", f"{DAY}102000000")
    # It was built on the newest, on another file group, or began before the other one had completed.
    assert not overwritten(first, second, rebuilt("102000", "102500", f"{DAY}101000000", "a"))
    assert not overwritten(first, second, rebuilt("102000", "102500", T10, "b"))
    assert not overwritten(first, second, rebuilt("101200", "102500", T10, "a"))
    # It was copied: its times show nothing.
    copied = [
        replace(change, completed_ms=change.completed_ms + 900_000) for change, _ in (first, second)
    ]
    assert not overwritten((copied[0], first[1]), (copied[1], second[1]))
    # What it was built on is archived: its place in time is unknown.
    assert not overwritten(second, rebuilt("102000", "102500", "20261101000000000", "a"))


def metadata_timeline(*times):
    names = (f"{time}{ending}" for time in times for ending in REQUESTED_AND_DONE)
    return Timeline.from_file_names([*names, f"{DAY}090000000.clean"])


def test_commits_that_the_metadata_table_lacks_are_found():
    times = [f"{DAY}1{n}0000000" for n in range(4)]
    writes = [instant(f"1{n}0000", f"1{n}0500") for n in range(4)]
    listed = ("00000000000000010", f"{times[1]}010", times[1], times[3])
    (finding,) = unseen.unlisted_commits(writes, metadata_timeline(*listed))
    assert (finding.check, finding.instants) == ("unlisted_commit", (times[2],))
    assert not checks(unseen.unlisted_commits(writes, metadata_timeline(*listed, times[2])))
    assert not checks(unseen.unlisted_commits(writes, metadata_timeline()))


def config(version):
    return TableConfig({"hoodie.table.version": str(version)})


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        (config(6), []),
        (config(8), ["upgraded_metadata_table"]),
        (TableConfig(), ["damaged_metadata_table"]),
        (None, ["damaged_metadata_table"]),
    ],
    ids=["same", "newer", "missing", "unreadable"],
)
def test_a_metadata_table_that_its_tables_writers_cannot_read_is_found(metadata, names):
    assert checks(unseen.metadata_table_format(config(6), metadata)) == names


def test_a_damaged_metadata_table_does_not_end_the_examination(tmp_path):
    table = unpack(FOLDER / "1.2.0" / "operations.zip", tmp_path)
    of_metadata = table / ".hoodie" / "metadata" / ".hoodie"
    (of_metadata / "hoodie.properties").write_text("")
    (of_metadata / "hoodie.properties.backup").unlink(missing_ok=True)
    names = checks(examine(HudiTable(str(table))))
    assert "damaged_metadata_table" in names
    assert "unsigned_writes" in names


def test_another_program_is_told_to_leave_an_old_table_as_it_is(run, monkeypatch, tmp_path):
    lock = {"conn_type": "hudi_zookeeper_lock", "host": "zk1:2181", "extra": {"base_path": "/locks"}}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(lock))
    table = unpack(FOLDER / "0.15.0" / "operations.zip", tmp_path)
    told = json.loads(run("conf", str(table), "--lock-conn-id", "lock", "-o", "json"))
    config = HudiTable(str(table)).config()
    assert table_options(config).items() <= told.items()
    assert told["hoodie.write.table.version"] == str(config.version)
