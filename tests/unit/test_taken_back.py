"""Whose fault a rollback of the driver's own write is, and what became of an instant."""

from __future__ import annotations

import json

import pytest

from airflow_occ_provider.attempts.guards.heartbeat_alarm import Alarm, HeartbeatState
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.settle import settle
from airflow_occ_provider.attempts.waits import dangling
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.retry import ConflictRetry
from airflow_occ_provider.storage.residue import residues
from tests.support.hand_made_tables import BEFORE, SIGNATURE, T0, T1, T2, C, add, archive, begin, log_of
from tests.support.rollbacks import attempt, mark, roll_back
from tests.unit.reports import cause, fact

SOON, LATE, DONE = "20261121092600000", "20261121093200000", "20261121093300000"
RULE = HeartbeatRule(60_000, 2)
GONE = cause("java.lang.IllegalArgumentException", f"File /t/{T1}.inflight does not exist!", jvm=True)
BAD_RECORD = cause("org.apache.spark.SparkException", "Job aborted: ValueError: bad record", jvm=True)


def failed(log, error):
    log.take(fact("protected", followed=True))
    log.take(fact("fatal", causes=[error]))
    return log


def settled(folder, table, rollback, log, stop=None):
    add(folder, f"{T0}_{C}.commit")
    roll_back(folder, T1, f"{rollback}_{DONE}.rollback")
    return settle(table, SIGNATURE, log, 1, before=BEFORE, stop=stop, rule=RULE)


@pytest.mark.parametrize("rollback", [SOON, LATE])
def test_what_the_driver_rolled_back_itself_is_its_own_error(folder, table, rollback):
    log = log_of(T1)
    log.take(f"x INFO ActiveTimelineV2: Creating a new instant [==>{rollback}__rollback__REQUESTED]")
    failed(log, BAD_RECORD)
    assert settled(folder, table, rollback, log).outcome is Outcome.JOB_ERROR


RAN = (
    f"x INFO TransactionManager: State change starting for Option{{val=[==>{SOON}__rollback__INFLIGHT]}}"
)
REQUESTED = "x INFO BaseRollbackPlanActionExecutor: Requesting Rollback with instant time "


def test_a_rollback_of_others_that_the_driver_ends_is_theirs(folder, table):
    """To end it, Hudi requests a rollback of the same time in the metadata table."""
    log = log_of(T1)
    for line in (RAN, f"{REQUESTED}[==>{SOON}__rollback__REQUESTED]"):
        log.take(line)
    settlement = settled(folder, table, SOON, failed(log, BAD_RECORD))
    assert settlement.outcome is Outcome.ROLLED_BACK
    assert f"rollback {SOON} took back {T1}" in str(settlement.error())


@pytest.mark.parametrize("action", ["commit", "deltacommit", "replacecommit"])
@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_completed_write_that_the_table_does_not_show_is_no_success(
    folder, table, action, is_rolled_back
):
    log = log_of(T1)
    log.take(
        f"x INFO ActiveTimelineV2: Created new file for toInstant /t/.hoodie/timeline/{T1}_{C}.{action}"
    )
    log.take(fact("protected", followed=True))
    log.take(fact("ended"))
    add(folder, f"{T0}_{C}.commit")
    if is_rolled_back:
        roll_back(folder, T1, f"{SOON}_{DONE}.rollback")
    settlement = settle(table, SIGNATURE, log, 0, before=BEFORE, rule=RULE)
    assert (settlement.outcome, settlement.instant) == (Outcome.ROLLED_BACK, T1)
    assert not settlement.error().committed
    assert T1 in str(settlement.error())


def of_two_writes(folder):
    """Return the log of a driver that completed two writes of a table, and ended well."""
    log = log_of(T1, T2)
    for time in (T1, T2):
        for record in (
            f"Create new file for toInstant ?{folder}/timeline/{time}.inflight",
            "Successfully resolved conflicts, if any",
            f"Created new file for toInstant ?{folder}/timeline/{time}_{C}.commit",
        ):
            log.take(f"x INFO ActiveTimelineV2: {record}")
    log.take(fact("end", exit_code=0))
    return log


def complete(folder, table, time, *, has_files=True):
    add(folder, f"{time}_{C}.commit", identity=SIGNATURE.identity)
    snapshot = table.snapshot()
    for path in snapshot.reader.commit(snapshot.timeline.find(time)).paths if has_files else ():
        (folder.parent / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.parent / path).touch()


@pytest.mark.parametrize("commits", Commits)
@pytest.mark.parametrize("taken", [T1, T2])
def test_one_of_several_completed_writes_that_others_took_back_is_missing(folder, table, taken, commits):
    add(folder, f"{T0}_{C}.commit")
    complete(folder, table, T2 if taken == T1 else T1)
    roll_back(folder, taken, f"{SOON}_{DONE}.rollback")
    log = of_two_writes(folder)
    settlement = settle(table, SIGNATURE, log, 0, before=BEFORE, rule=RULE, commits=commits)
    error = settlement.error()
    assert (settlement.outcome, error.retry, error.committed) == (Outcome.ROLLED_BACK, False, True)
    assert taken in str(error)
    assert f"rollback {SOON}" in str(error)


@pytest.mark.parametrize("commits", Commits)
def test_what_the_job_took_back_itself_is_not_missing(folder, table, commits):
    add(folder, f"{T0}_{C}.commit")
    complete(folder, table, T2)
    roll_back(folder, T1, f"{SOON}_{DONE}.rollback")
    log = of_two_writes(folder)
    log.take(f"x INFO ActiveTimelineV2: Creating a new instant [==>{SOON}__rollback__REQUESTED]")
    settlement = settle(table, SIGNATURE, log, 0, before=BEFORE, rule=RULE, commits=commits)
    assert (settlement.outcome, settlement.error()) == (Outcome.COMMITTED, None)


def test_each_of_many_commits_is_audited(folder, table):
    add(folder, f"{T0}_{C}.commit")
    complete(folder, table, T2)
    stat = {"fileId": "f9-0", "path": f"p=1/f9-0_1-0_{T1}.parquet", "prevCommit": "null"}
    made = {"partitionToWriteStats": {"p=1": [stat]}, "operationType": "UPSERT"}
    (folder / "timeline" / f"{T1}_{C}.commit").write_text(json.dumps(made))
    log = of_two_writes(folder)
    settlement = settle(table, SIGNATURE, log, 0, before=BEFORE, rule=RULE, commits=Commits.MANY)
    assert (settlement.outcome, settlement.instant) == (Outcome.ROLLED_BACK, T1)
    assert f"data loss: commit {T1}" in str(settlement.error())


@pytest.mark.parametrize("error", [GONE, BAD_RECORD])
def test_a_write_that_stood_still_is_retried_and_no_writer_is_blamed(folder, table, error):
    settlement = settled(folder, table, LATE, failed(log_of(T1), error))
    assert settlement.outcome is Outcome.HEARTBEAT_EXPIRED
    assert f"rollback {LATE} took back {T1}" in str(settlement.error())
    assert "without optimistic concurrency control" not in str(settlement.error())
    assert ConflictRetry().judge(settlement.error(), {}, 0, 0.5).retry


@pytest.mark.parametrize("error", [GONE, BAD_RECORD])
def test_a_rollback_before_a_heartbeat_can_expire_is_that_of_a_single_writer(folder, table, error):
    settlement = settled(folder, table, SOON, failed(log_of(T1), error))
    assert settlement.outcome is Outcome.ROLLED_BACK
    assert "without optimistic concurrency control" in str(settlement.error())


def test_a_rollback_that_the_guard_saw_beside_a_fresh_heartbeat_is_one_too(folder, table):
    stop = Stop(Outcome.ROLLED_BACK, f"rollback {LATE} takes back {T1}")
    settlement = settled(folder, table, LATE, failed(log_of(T1), GONE), stop)
    assert settlement.outcome is Outcome.ROLLED_BACK


def observed(alarm, *ticks_s, rollback_at=None):
    """Let it look each 10 s at a heartbeat that last ticked at some second."""
    for number, tick_s in enumerate(ticks_s):
        rollback = SOON if rollback_at is not None and number >= rollback_at else None
        at_s = 10 * number
        alarm.take(HeartbeatState(T1, 1_000 * tick_s, rollback), 1_000 * at_s, float(at_s))
    return alarm.stop.outcome if alarm.stop else None


def test_a_driver_that_wakes_up_after_its_lazy_rollback_has_expired():
    still = [0] * 14
    assert observed(Alarm(RULE), *still, 140, rollback_at=14) is Outcome.HEARTBEAT_EXPIRED
    # The guard's host stood still together with the driver: only the tick shows it.
    assert observed(Alarm(RULE), 0, 300, rollback_at=1) is Outcome.HEARTBEAT_EXPIRED


def test_a_rollback_beside_a_fresh_heartbeat_is_named_also_if_that_pauses_later():
    assert observed(Alarm(RULE), 0, 10, 20, rollback_at=2) is Outcome.ROLLED_BACK
    still = [20] * 14
    assert observed(Alarm(RULE), 0, 10, *still, 150, rollback_at=2) is Outcome.ROLLED_BACK


def test_a_committed_instant_with_markers_is_committed_though_it_is_archived(folder, table):
    add(folder, f"{T2}_{C}.commit")
    mark(folder, T1)
    assert table.snapshot().ended_as(T1) is Fate.GONE
    assert [found.instant for found in dangling([attempt()], table.snapshot())] == [T1]
    add(folder, f"{T1}_{C}.commit", identity="me")
    assert table.snapshot().ended_as(T1) is Fate.COMMITTED
    archive(folder, T1)
    for rolled_back in (False, True):  # by a rollback that took only its request
        if rolled_back:
            roll_back(folder, T1, f"{SOON}_{C}.rollback")
        assert table.snapshot().ended_as(T1) is Fate.COMMITTED
        assert dangling([attempt()], table.snapshot()) == ()
        assert {one.kind.value for one in residues(table, RULE)} <= {"markers"}


def test_what_was_rolled_back_or_is_pending_is_told_apart(folder, table):
    roll_back(folder, T1, f"{SOON}_{C}.rollback")
    begin(folder, T2)
    assert table.snapshot().ended_as(T1) is Fate.ROLLED_BACK
    assert table.snapshot().ended_as(T2) is None
    history = folder / "timeline" / "history"
    history.mkdir(exist_ok=True)
    (history / "1_2_0.parquet").write_bytes(b"no parquet")
    (history / "manifest_1").write_text('{"files": [{"fileName": "1_2_0.parquet", "fileLen": 1}]}')
    (history / "_version_").write_text("1")
    mark(folder, T1)
    assert table.snapshot().ended_as(T1) is None
    assert dangling([attempt()], table.snapshot()) == ()
