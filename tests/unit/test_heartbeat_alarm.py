"""The alarm's thread on a table made by hand; what it says of each look is for the pure tests."""

from __future__ import annotations

import logging
import os
import threading
import time

import pytest

from airflow_occ_provider.attempts.guards import heartbeat
from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.guards.table_guards import TableGuards, TableViews
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.settle import settle
from airflow_occ_provider.errors import FailedAfterCommitError, HeartbeatExpiredError, RolledBackError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage import listing
from airflow_occ_provider.storage.table import HudiTable
from tests.support.hand_made_tables import T0, T1, add
from tests.support.patched import only_in
from tests.support.rollbacks import roll_back

RULE = HeartbeatRule(interval_ms=60_000, tolerable_misses=2)
QUICK = HeartbeatRule(interval_ms=50, tolerable_misses=2)
R, DONE = "20261121092600000", "20261121092601000"
TIMER = (
    'Exception in thread "Timer-0" org.apache.hudi.exception.HoodieHeartbeatException: '
    f"Unable to generate heartbeat for instant {T1}"
)
FRAME = "\tat org.apache.hudi.client.heartbeat.HoodieHeartbeatClient.updateHeartbeat(H.java:220)"
CONFLICT = (
    "Conflict: first operation = ConcurrentOperation(actionState=INFLIGHT, actionType=commit, "
    f"instantTime={T1}), second operation = ConcurrentOperation(actionState=COMPLETED, instantTime={T0})"
)
PATIENCE_S = 120


ROLLBACK = f"[==>{R}__rollback__REQUESTED]"


def requests(*times):
    return [
        f"INFO ActiveTimelineV2: Creating a new instant [==>{time}__commit__REQUESTED]" for time in times
    ]


@pytest.fixture
def log():
    read = DriverLog()
    for line in requests(T1):
        read.take(line)
    return read


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records]


def tick(folder, instant=T1, age_s=0.0):
    path = folder / ".heartbeat" / instant
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)


def begin(folder, instant=T1, *, age_s=0.0):
    add(folder, f"{instant}.commit.requested")
    tick(folder, instant, age_s)


def watching(table, log, rule=RULE, **options):
    logger = logging.getLogger("task")
    return TableGuards(TableViews(table), log, [HeartbeatAlarm(log, rule, logger, **options)], logger)


def test_a_driver_that_has_not_asked_for_a_write_costs_no_request(table, told):
    alarm = watching(None, DriverLog())
    alarm.check()
    assert told() == []


def test_a_dead_heartbeat_is_logged_and_stops_nothing(folder, table, log, told):
    begin(folder, age_s=200)
    margins = []
    alarm = watching(table, log, on_margin=margins.append)
    alarm.check()
    alarm.check()
    (word,) = told()
    assert "as dead: its heartbeat's last tick was 200 s ago" in word
    assert alarm.stop is None
    assert margins == [pytest.approx(-80, abs=2)] * 2


@pytest.mark.parametrize("name", [f"{R}.rollback.requested", f"{R}_{DONE}.rollback"])
def test_a_rollback_that_names_the_write_ends_its_driver(folder, table, log, name):
    begin(folder)
    roll_back(folder, T1, name)
    alarm = watching(table, log)
    alarm.check()
    assert alarm.stop.outcome is Outcome.ROLLED_BACK
    assert R in alarm.stop.line


def test_also_where_the_rollback_has_removed_the_instant(folder, table, log):
    tick(folder)
    roll_back(folder, T1, f"{R}_{DONE}.rollback")
    alarm = watching(table, log)
    alarm.check()
    assert alarm.stop.outcome is Outcome.ROLLED_BACK


def test_a_rollback_of_another_write_is_none_of_its(folder, table, log):
    begin(folder)
    roll_back(folder, T0, f"{R}.rollback.requested")
    alarm = watching(table, log)
    alarm.check()
    assert alarm.stop is None


def test_a_rollback_by_the_driver_itself_ends_nothing(folder, table, log):
    begin(folder)
    roll_back(folder, T1, f"{R}.rollback.requested")
    log.take(f"INFO BaseRollbackPlanActionExecutor: Requesting Rollback with instant time {ROLLBACK}")
    alarm = watching(table, log)
    alarm.check()
    assert alarm.stop is None


def test_a_rollback_that_the_drivers_log_shows_a_moment_later_stops_nothing(folder, table, log):
    begin(folder)
    roll_back(folder, T1, f"{R}.rollback.requested")
    line = f"INFO BaseRollbackPlanActionExecutor: Requesting Rollback with instant time {ROLLBACK}"
    later = threading.Timer(0.1, log.take, [line])
    later.start()
    alarm = watching(table, log)
    alarm.check()
    later.join()
    assert alarm.stop is None


def test_a_rollback_is_the_drivers_own_until_the_log_of_a_remote_driver_was_read_again(
    folder, table, log, told
):
    begin(folder)
    alarm = watching(table, log, log_follows=False)
    roll_back(folder, T1, f"{R}.rollback.requested")
    alarm.check()
    assert alarm.stop is None
    alarm.check()
    assert alarm.stop.outcome is Outcome.ROLLED_BACK
    other = watching(table, log, log_follows=False)
    other.check()
    log.take(f"INFO BaseRollbackPlanActionExecutor: Requesting Rollback with instant time {ROLLBACK}")
    other.check()
    assert other.stop is None


def test_a_write_that_lost_a_conflict_is_given_up_by_hudi_itself(folder, table, log, told):
    begin(folder, age_s=500)
    roll_back(folder, T1, f"{R}.rollback.requested")
    log.take(CONFLICT)
    alarm = watching(table, log)
    alarm.check()
    assert (alarm.stop, told()) == (None, [])


def test_only_the_youngest_write_counts_as_after_a_retry_by_hudi(folder, table, log, told):
    begin(folder, age_s=500)
    roll_back(folder, T1, f"{R}.rollback.requested")
    for line in requests(DONE):
        log.take(line)
    begin(folder, DONE)
    alarm = watching(table, log)
    alarm.check()
    assert (alarm.stop, told()) == (None, [])


def test_a_write_of_the_job_in_another_table_does_not_hide_the_one_in_this(folder, table, log):
    begin(folder)
    roll_back(folder, T1, f"{R}.rollback.requested")
    for line in requests(DONE):
        log.take(line)
    alarm = watching(table, log)
    alarm.check()
    assert alarm.stop


def test_once_the_write_is_completed_there_is_nothing_to_look_after(folder, table, log, told):
    begin(folder, age_s=500)
    add(folder, f"{T1}_{DONE}.commit", identity="me")
    roll_back(folder, T1, f"{R}.rollback.requested")
    log.take(TIMER)
    log.take(FRAME)
    alarm = watching(table, log, QUICK)
    alarm.check()
    time.sleep(0.2)
    alarm.check()
    assert (alarm.stop, told()) == (None, [])


@pytest.mark.parametrize(
    ("lines", "ends"),
    [([TIMER, FRAME], True), ([TIMER.replace(T1, T0), FRAME], False), ([TIMER], False), ([], False)],
)
def test_a_dead_timer_of_the_write_ends_its_driver_and_nothing_else_does(
    folder, table, log, lines, ends
):
    begin(folder)
    for line in lines:
        log.take(line)
    alarm = watching(table, log, QUICK)
    alarm.check()
    assert alarm.stop is None
    time.sleep(0.2)
    alarm.check()
    assert (alarm.stop is not None) == ends


def test_the_guard_says_stop_at_every_tick_from_then_on(folder, table, log, told):
    begin(folder)
    roll_back(folder, T1, f"{R}.rollback.requested")
    deadline = time.monotonic() + PATIENCE_S
    with watching(table, log, HeartbeatRule(1000, 2)) as alarm:
        while (stop := alarm.stop) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2 * heartbeat._LEAST_PERIOD_S)
        assert alarm.stop is stop
    assert alarm.stop is stop
    assert len(told()) == 1


def test_an_unreachable_storage_is_logged_once_and_proves_nothing(folder, log, told, monkeypatch):
    begin(folder)
    roll_back(folder, T1, f"{R}.rollback.requested")
    log.take(TIMER)
    log.take(FRAME)
    table, stalled = HudiTable(str(folder.parent), timeout_s=0.1), threading.Event()
    only_in(monkeypatch, listing, "os", listdir=lambda path: stalled.wait(PATIENCE_S) or [])
    alarm = watching(table, log, QUICK)
    for _ in range(3):
        alarm.check()
    (word,) = told()
    assert "did not answer in 0.1 s" in word
    assert alarm.stop is None
    stalled.set()


def test_a_defect_of_ours_ends_no_task(folder, log, told):
    begin(folder)
    alarm = watching(None, log)
    alarm.check()
    (word,) = told()
    assert "AttributeError" in word


def test_a_table_that_the_first_write_has_not_made_yet(tmp_path, log, told):
    alarm = watching(HudiTable(str(tmp_path / "none")), log)
    alarm.check()
    assert told() == []


def test_the_margin_is_whole_again_when_the_driver_has_ended(folder, table, log):
    margins = []
    with watching(table, log, on_margin=margins.append):
        pass
    assert margins == [120.0]


def settled(table, log, exit_code, stop):
    return settle(table, Signature("me", "d", "r", "t"), log, exit_code, stop=stop)


EXPIRED = Stop(Outcome.HEARTBEAT_EXPIRED, "its timer died")


@pytest.mark.parametrize(
    ("stop", "error", "retry"),
    [(EXPIRED, HeartbeatExpiredError, True), (Stop(Outcome.ROLLED_BACK, "R"), RolledBackError, False)],
)
@pytest.mark.parametrize("exit_code", [143, -9])
def test_what_we_ended_was_not_killed(folder, table, log, stop, error, retry, exit_code):
    begin(folder)
    found = settled(table, log, exit_code, stop)
    assert (found.outcome, found.lines) == (stop.outcome, (stop.line,))
    assert isinstance(found.error(), error)
    assert (found.error().retry, found.error().committed) == (retry, False)
    assert found.retired == (T1,)


def test_a_commit_that_landed_before_the_driver_was_ended_is_one(folder, table, log):
    begin(folder)
    add(folder, f"{T1}_{DONE}.commit", identity="me")
    (instant,) = table.snapshot().timeline.completed_writes()
    for path in table.snapshot().reader.commit(instant).paths:
        (folder.parent / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.parent / path).touch()
    log.take("INFO TransactionUtils: Successfully resolved conflicts, if any")
    found = settled(table, log, 143, EXPIRED)
    assert found.outcome is Outcome.COMMITTED
    assert isinstance(found.error(), FailedAfterCommitError)
    assert "its timer died" in found.error().message


def test_a_stop_decides_whatever_the_exit_code(folder, table, log):
    """A wrapper that waits for the driver which a guard has ended leaves with a code of its own."""
    begin(folder)
    for code in (0, 1, 3, 143, -9):
        assert settled(table, log, code, EXPIRED).outcome is Outcome.HEARTBEAT_EXPIRED
