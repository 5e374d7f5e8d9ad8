"""The guard against a write that Hudi will refuse, on a table that real Hudi wrote."""

from __future__ import annotations

import logging
import os
import re
import threading
import zipfile

import pytest

from airflow_occ_provider.attempts.attempt import log_settlement
from airflow_occ_provider.attempts.guards import early_stop
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop, applied_mode
from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.guards.table_guards import TableGuards, TableViews
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.settle import settle
from airflow_occ_provider.errors import FailedAfterCommitError, WriteConflictError
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy, strategy_of
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.snapshot import Operations
from airflow_occ_provider.storage.table import HudiTable
from tests.support.early_stop import LOGGER, TABLES, Race, before_the_profile

LATER = "20991231235959999"
PATIENCE_S = 120
OPENED = "Option{{val=[==>{}__commit__INFLIGHT]}}"


@pytest.fixture
def race(tmp_path):
    return Race(tmp_path)


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_write_that_has_lost_is_stopped_as_a_conflict_with_its_rival(race, told):
    guard = race.guard()
    race.look(guard)
    assert guard.stop.outcome is Outcome.COMMIT_CONFLICT
    assert guard.stop.rival == race.rival
    evidence = f"{race.ours} can no longer commit: {race.rival} has completed since it began"
    assert guard.stop.line.startswith(evidence)
    assert "1 of its file groups (p1/" in guard.stop.line
    assert told() == [f"{guard.stop.line}."]


def test_the_stopped_driver_settles_as_a_lost_conflict(race):
    guard = race.guard()
    race.look(guard)
    found = settle(race.table, Signature("i", "d", "r", "t"), race.log, -9, stop=guard.stop)
    assert (found.outcome, found.instant, found.rival) == (
        Outcome.COMMIT_CONFLICT,
        race.ours,
        race.rival,
    )
    assert isinstance(found.error(), WriteConflictError)
    assert race.rival in str(found.error())


@pytest.mark.parametrize("exit_code", [-9, 143])
def test_a_commit_that_lands_after_the_finding_counts_and_the_log_corrects_the_finding(
    race, told, exit_code
):
    stop = race.stop()
    race.lands()
    settlement = race.settled(exit_code, stop)
    assert (settlement.outcome, settlement.commit.instant.time) == (Outcome.COMMITTED, race.ours)
    assert settlement.error() is None
    log_settlement(LOGGER, settlement)
    assert f"early_stop was wrong or too late: {race.ours} is committed" in told()[-2]
    assert told()[-1] == f"Decided by: {race.ours} commit COMPLETED"


def test_a_job_that_was_ended_in_its_next_write_has_failed(race):
    stop = race.stop()
    race.lands()
    race.requests(LATER)
    for kind in ("commit.requested", "inflight"):
        (race.timeline / f"{LATER}.{kind}").touch()
    error = race.settled(-9, stop).error()
    assert isinstance(error, FailedAfterCommitError)
    assert f"it wrote {race.ours}, {LATER}, which it left unfinished" in str(error)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_stopped_write_that_was_rolled_back_before_the_settlement_is_unfinished(race, exit_code):
    """The commit before it is not the write that the stop names."""
    race.lands()
    race.begins(race.ours, race.path)
    race.requests(LATER)
    race.begins(LATER, race.path)
    stop = Stop(Outcome.COMMIT_CONFLICT, "lost", race.rival, LATER)
    settlement = race.settled(exit_code, stop)
    assert settlement.own_writes.last_unfinished == LATER
    assert isinstance(settlement.error(), FailedAfterCommitError)
    assert settlement.overruled is None


def test_a_job_that_failed_by_itself_after_its_commit_has_failed(race):
    race.stop()
    race.lands()
    assert isinstance(race.settled(1, None).error(), FailedAfterCommitError)


def test_observing_stops_nothing_and_tells_at_the_end_what_became_of_it(race, told):
    guard = race.guard(EarlyStop.OBSERVE)
    race.look(guard)
    assert guard.stop is None
    assert len(told()) == 1
    early_stop.log_outcomes(LOGGER, [guard.doomed], Outcome.COMMIT_CONFLICT)
    assert re.match(rf"\d+ s after early_stop found that {race.ours} can no longer", told()[-1])
    assert told()[-1].endswith("its outcome is commit_conflict.")


def test_a_rival_that_is_still_pending_stops_nothing(race, told):
    race.winner.unlink()
    guard = race.guard()
    race.look(guard)
    assert guard.stop is None
    assert (guard.doomed, told()) == (None, [])


def test_a_profile_that_is_not_built_on_the_rival_shows_that_it_was_not_read(race):
    before_the_profile(race)
    assert race.stop().rival == race.rival


def test_a_profile_that_is_built_on_the_rival_shows_that_it_was_read(race):
    (operation,) = Operations(race.table.snapshot(), {}).read([race.instant(race.ours)])
    (base,) = set(operation.bases.values())
    built = race.profile.read_bytes().replace(base.encode(), race.rival.encode())
    race.profile.write_bytes(built)
    before_the_profile(race)
    assert race.stop() is None


def test_with_a_record_index_a_profile_may_name_an_older_base_than_was_read(race):
    properties = race.path / ".hoodie" / "hoodie.properties"
    with properties.open("a") as added:
        added.write("\nhoodie.table.metadata.partitions=files,record_index\n")
    race.table = HudiTable(str(race.path))
    before_the_profile(race)
    assert race.table.config().has_record_index
    assert race.stop() is None


def test_a_commit_that_hudi_is_checking_is_left_to_hudi(race):
    made = f"{race.path}/.hoodie/timeline/{race.ours}.inflight"
    race.log.take(f"x INFO ActiveTimelineV2: Create new file for toInstant ?{made}")
    race.log.take(f"x INFO TransactionManager: State change starting for {OPENED.format(race.ours)}")
    guard = race.guard()
    race.look(guard)
    assert guard.stop is None


def test_a_job_that_has_begun_another_write_is_not_ended_for_its_first(race, monkeypatch):
    guard, judge = race.guard(), early_stop.lost_conflict

    def slow(*given):
        race.requests(LATER)
        return judge(*given)

    monkeypatch.setattr(early_stop, "lost_conflict", slow)
    race.beats(race.ours)
    race.look(guard)
    assert guard.doomed is None
    race.begins(LATER, "/lake/other")  # so it goes on with its first
    race.look(guard)
    assert guard.doomed


def elsewhere(race):
    race.requests(LATER)
    race.begins(LATER, "/lake/other")


def completed(race):
    race.requests(LATER)
    for kind in ("commit.requested", "inflight"):
        (race.timeline / f"{LATER}.{kind}").touch()
    (race.timeline / f"{LATER}_{LATER}.commit").write_bytes(race.winner.read_bytes())


@pytest.mark.parametrize("younger", [elsewhere, completed])
def test_an_earlier_write_is_judged_while_it_has_a_heartbeat(race, younger):
    younger(race)
    assert race.stop() is None  # the job may have given it up
    race.beats(race.ours)
    assert race.stop().line.startswith(f"{race.ours} can no longer commit")


def test_an_instant_that_may_be_in_this_table_hides_the_earlier_ones(race):
    race.beats(race.ours)
    race.requests(LATER)
    assert race.stop() is None
    race.begins(LATER, race.path)
    assert race.stop() is None


@pytest.mark.parametrize("table", ["/lake/other", "s3a://lake/other"])
def test_a_write_of_another_table_is_not_judged_by_one_of_the_same_time_in_this(race, table):
    race.beats(race.ours)
    race.begins(race.ours, table)
    assert race.stop() is None


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_a_write_whose_log_names_this_table_is_judged(race, prefix):
    race.begins(race.ours, f"{prefix}{race.path}")
    assert race.stop()


def test_a_clustering_that_the_driver_plans_hides_no_write(tmp_path):
    race = Race(tmp_path / "race", "0.15.0")
    with zipfile.ZipFile(TABLES / "0.15.0" / "clustering.zip") as packed:
        plan = next(name for name in packed.namelist() if name.endswith("replacecommit.requested"))
        (race.timeline / f"{LATER}.replacecommit.requested").write_bytes(packed.read(plan))
    race.requests(LATER, "replacecommit")
    race.beats(race.ours)
    assert race.stop().line.startswith(f"{race.ours} can no longer commit")


def test_a_write_whose_profile_is_still_to_come_is_judged_again(race):
    race.profile.rename(race.path / "profile")
    guard = race.guard()
    race.look(guard)
    assert guard.stop is None
    (race.path / "profile").rename(race.profile)
    race.look(guard)
    assert guard.stop


def test_file_groups_are_compared_only_after_another_commit(race, monkeypatch):
    race.winner.rename(race.path / "later")
    guard, judged = race.guard(), []
    monkeypatch.setattr(early_stop, "lost_conflict", lambda _, ours, *__: judged.append(ours.time))
    race.look(guard)
    race.look(guard)
    assert judged == []
    (race.path / "later").rename(race.winner)
    race.look(guard)
    race.look(guard)
    assert judged == [race.ours]


def test_a_table_that_cannot_be_read_proves_nothing(race, told):
    guard = race.guard()
    written = race.winner.stat().st_mtime_ns
    whole = race.winner.read_bytes()
    race.winner.write_bytes(b"no commit")
    guards = race.guards(guard)
    guards.check()
    guards.check()
    assert guard.stop is None
    (line,) = told()
    assert line.startswith("The driver's rivals cannot be looked at, which says nothing of")
    race.winner.write_bytes(whole)
    os.utime(race.winner, ns=(written, written))
    guards.check()
    assert guard.stop


def test_the_thread_looks_until_the_block_ends_and_not_at_all_if_it_is_off(race, monkeypatch):
    monkeypatch.setattr(early_stop, "_PERIOD_S", 0.01)
    with race.guards(race.guard()) as guards:
        waited = threading.Event()
        for _ in range(PATIENCE_S * 10):
            if guards.stop or waited.wait(0.1):
                break
        assert guards.stop
    off = race.guard(EarlyStop.OFF)
    with race.guards(off):
        waited.wait(0.1)
    race.look(off)
    assert off.doomed is None


RETRIES = "hoodie.write.num.retries.on.conflict.failures"
SIMPLE = {STRATEGY_OPTION: Strategy.SIMPLE.class_name}


@pytest.mark.parametrize("options", [{}, {RETRIES: "0"}, SIMPLE])
def test_early_stop_applies_where_its_verdict_is_certain(options, told):
    assert applied_mode(EarlyStop.ACT, options, LOGGER) is EarlyStop.ACT
    assert told() == []
    assert (strategy_of({}), strategy_of(SIMPLE)) == (None, Strategy.SIMPLE)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({RETRIES: "2"}, f"with {RETRIES} Hudi writes again after a conflict"),
        ({STRATEGY_OPTION: "a.Merging"}, "the rules of a.Merging are not known"),
        (
            {"hoodie.index.type": "hbase"},
            "an index in HBase names older files than the job has read",
        ),
    ],
)
def test_what_leaves_no_certain_verdict_is_logged_if_one_was_wanted(options, why, told):
    assert applied_mode(EarlyStop.OFF, options, LOGGER) is EarlyStop.OFF
    assert told() == []
    assert applied_mode(EarlyStop.ACT, options, LOGGER) is EarlyStop.OFF
    assert told() == [f"early_stop='act' is not applied to the driver: {why}."]


def test_a_finding_that_was_wrong_is_a_warning(race, caplog):
    guard = race.guard(EarlyStop.OBSERVE)
    race.look(guard)
    early_stop.log_outcomes(LOGGER, [guard.doomed], Outcome.COMMITTED)
    assert caplog.records[-1].levelno == logging.WARNING


def test_all_guards_of_a_driver_look_in_one_view_of_its_table(race, monkeypatch):
    listed = []
    listing = race.table.files.listing
    monkeypatch.setattr(race.table.files, "listing", lambda path: listed.append(path) or listing(path))
    guard = race.guard()
    guards = race.guards(HeartbeatAlarm(race.log, HeartbeatRule(), LOGGER), guard)
    race.winner.rename(race.path / "later")
    guards.check()
    listed.clear()
    (race.path / "later").rename(race.winner)
    guards.check()
    assert guard.stop
    assert listed == [".hoodie/timeline"]


def test_the_guards_of_several_drivers_share_a_view_of_their_table(race, monkeypatch):
    listed = []
    listing = race.table.files.listing
    views = TableViews(race.table, 600.0)
    monkeypatch.setattr(race.table.files, "listing", lambda path: listed.append(path) or listing(path))
    watched = [race.guard() for _ in range(3)]
    for guard in watched:
        TableGuards(views, race.log, [guard], LOGGER).check()
    assert all(guard.stop for guard in watched)
    assert listed == [".hoodie/timeline"] * 2  # the first view opens the table


def test_a_look_that_is_under_way_when_the_driver_ends_finds_nothing(race):
    guard = race.guard()
    view = TableViews(race.table).current()
    guard.end()
    guard.look(view)
    assert guard.doomed is None
