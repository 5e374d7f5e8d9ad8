"""The choice between two pending writes of ours, on a table that real Hudi wrote."""

from __future__ import annotations

import dataclasses
import logging
import os
from types import SimpleNamespace

import pytest

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop, log_outcomes
from airflow_occ_provider.attempts.identity import UnwrittenSignature
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.record import TryKey
from airflow_occ_provider.attempts.rivals import pending_rivals
from airflow_occ_provider.attempts.settle import settle
from airflow_occ_provider.attempts.write_attempt import WriteAttempt
from airflow_occ_provider.errors import LockUnreachableError, WriteConflictError
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.storage.conflicts import earlier_overlap, planned_before
from airflow_occ_provider.storage.table import HudiTable
from tests.support.earlier_writer import LOGGER, Pair

OTHER = Owner(("two_writers", "run_1", "write_a"))


class Lease:
    """The lease of the later task, and what others have announced in the queue."""

    def __init__(self, **announced):
        self.told, self.others, self.asked = [], announced, 0

    def announce(self, instant):
        self.told.append(instant)

    def announced(self):
        self.asked += 1
        return self.others


class Unreachable(Lease):
    def announce(self, instant):
        raise LockUnreachableError("no answer", remedy="wait")


class Unheard(Lease):
    """Its service takes what is announced, and does not tell what others have."""

    def __init__(self, times, **announced):
        super().__init__(**announced)
        self.times = times

    def announced(self):
        self.times -= 1
        if self.times >= 0:
            raise LockUnreachableError("no answer", remedy="wait")
        return super().announced()


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path)


def test_the_later_of_two_announced_writes_gives_way(pair):
    lease = Lease(**{pair.earlier: OTHER})
    stop = pair.stop(lease)
    assert (stop.outcome, stop.rival) == (Outcome.YIELDED, pair.earlier)
    assert stop.line == (
        f"{pair.later} gives way to the earlier {pair.earlier} of {OTHER}, which writes one of its "
        "file groups"
    )
    assert lease.told == [pair.later]


def test_a_profile_that_was_still_being_written_in_the_listing_has_no_final_time(pair):
    lease = Lease(**{pair.earlier: OTHER})
    lease.announced = lambda: pair.planned(pair.earlier, 10) or lease.others  # after the listing
    assert pair.stop(lease) is None


def test_the_earlier_one_goes_on(pair):
    lease = Lease(**{pair.later: OTHER})
    assert pair.stop(lease, instant=pair.earlier) is None
    assert (lease.told, lease.asked) == ([pair.earlier], 0)


def test_a_foreign_rival_never_ends_a_driver_and_the_queue_is_asked_three_times(pair):
    lease = Lease()
    guard, looking = pair.guard(lease)
    for _ in range(6):
        looking.check()
    assert guard.doomed is None
    assert (lease.told, lease.asked) == ([pair.later], 3)


def test_one_that_is_announced_late_still_counts(pair):
    lease = Lease()
    guard, looking = pair.guard(lease)
    looking.check()
    lease.others = {pair.earlier: OTHER}
    looking.check()
    assert guard.stop.rival == pair.earlier


def test_only_answers_are_counted(pair):
    lease = Unheard(5, **{pair.earlier: OTHER})
    guard, looking = pair.guard(lease)
    for _ in range(6):
        looking.check()
    assert guard.stop.rival == pair.earlier


def test_a_dead_writer_is_no_reason(pair):
    pair.dies(pair.earlier)
    lease = Lease(**{pair.earlier: OTHER})
    assert pair.stop(lease) is None
    assert lease.asked == 0


def test_the_write_that_was_planned_first_goes_on_whichever_was_requested_first(pair):
    """Its markers are there first: Hudi's early detection would refuse the other one."""
    pair.planned(pair.earlier, 10)
    assert pair.stop(Lease(**{pair.earlier: OTHER})) is None
    assert pair.stop(Lease(**{pair.later: OTHER}), instant=pair.earlier).rival == pair.later


@pytest.mark.parametrize("without", ["earlier", "later"])
def test_without_both_profiles_nothing_is_known(pair, without):
    (pair.timeline / f"{getattr(pair, without)}.inflight").write_bytes(b"")
    assert pair.stop(Lease(**{pair.earlier: OTHER})) is None


def test_writes_of_different_file_groups_go_on(pair):
    profile = pair.timeline / f"{pair.earlier}.inflight"
    renamed = profile.read_bytes().replace(b"p1", b"p7")
    at = profile.stat()
    profile.write_bytes(renamed)
    os.utime(profile, (at.st_atime, at.st_mtime))
    assert pair.stop(Lease(**{pair.earlier: OTHER})) is None


@pytest.mark.parametrize("requested", [-1, 1])
def test_a_rival_that_may_lose_to_a_write_planned_before_it_ends_nobody(pair, requested):
    """It gives way itself, or is lost once a foreign one has completed."""
    first = pair.copy(requested)
    pair.planned(first, 90)
    both = Lease(**{first: OTHER, pair.earlier: OTHER})
    assert pair.stop(both).rival == first
    assert pair.stop(Lease(**{pair.earlier: OTHER})) is None


def test_a_rival_that_may_lose_to_a_completed_write_ends_nobody(pair):
    other = pair.copy(1)
    done = f"{other}_{int(other) + 1}.commit"
    pair.done[other] = done
    (pair.path / done).write_bytes((pair.path / pair.done[pair.earlier]).read_bytes())
    pair.completes(other)
    (pair.path / ".hoodie" / ".heartbeat" / other).unlink()
    earlier = HudiTable(str(pair.path)).snapshot().timeline.find(pair.earlier)
    planned = planned_before(pair.table.snapshot(), pair.instant(pair.later), [earlier])
    assert (
        earlier_overlap(pair.table.snapshot(), pair.instant(pair.later), planned, {pair.earlier}) is None
    )


def test_writes_planned_at_the_same_time_are_in_the_order_of_their_requests(pair):
    pair.planned(pair.later, 60)
    assert pair.stop(Lease(**{pair.earlier: OTHER})).rival == pair.earlier
    assert pair.stop(Lease(**{pair.later: OTHER}), instant=pair.earlier) is None


def test_a_completed_rival_is_a_lost_conflict_whatever_is_announced(pair):
    pair.completes(pair.earlier)
    stop = pair.stop(Lease(**{pair.earlier: OTHER}))
    assert (stop.outcome, stop.rival) == (Outcome.COMMIT_CONFLICT, pair.earlier)


def test_to_observe_ends_no_driver_and_a_loss_after_the_choice_is_found_too(pair, caplog):
    guard, looking = pair.guard(Lease(**{pair.earlier: OTHER}), mode=EarlyStop.OBSERVE)
    looking.check()
    looking.check()
    assert guard.stop is None
    assert (guard.choice.stop.outcome, guard.doomed) == (Outcome.YIELDED, None)
    pair.completes(pair.earlier)
    looking.check()
    assert guard.stop is None
    assert guard.doomed.stop.outcome is Outcome.COMMIT_CONFLICT
    first, second = (record.getMessage() for record in caplog.records)
    assert first == f"With early_stop='act': {guard.choice.stop.line}."
    assert second == f"{guard.doomed.stop.line}."


def test_what_became_of_a_choice_is_no_surprise(pair, caplog):
    caplog.set_level(logging.INFO)
    guard, looking = pair.guard(Lease(**{pair.earlier: OTHER}), mode=EarlyStop.OBSERVE)
    looking.check()
    log_outcomes(LOGGER, [guard.choice, None], Outcome.COMMITTED)
    said = caplog.records[-1]
    line = f" s after early_stop chose that {guard.choice.stop.line}: its outcome is committed."
    assert (said.levelno, said.getMessage().lstrip("0123456789")) == (logging.INFO, line)


def test_a_task_that_is_not_tried_again_gives_way_to_nobody_and_announces_its_write(pair):
    lease = Lease(**{pair.earlier: OTHER})
    guard, looking = pair.guard(lease, may_retry=False)
    looking.check()
    assert guard.stop is None
    assert (lease.told, lease.asked) == ([pair.later], 0)
    pair.completes(pair.earlier)
    looking.check()
    assert guard.stop.outcome is Outcome.COMMIT_CONFLICT


@pytest.mark.parametrize(
    ("granted", "max_tries", "expected"),
    [(True, 1, True), (False, 14, False), (None, 2, True), (None, 1, False)],
)
def test_a_retry_is_the_policys_or_what_airflow_has_left(granted, max_tries, expected):
    """The policy judges a conflict; one that is not ours is not asked."""
    asked = []
    fields = dict.fromkeys(one.name for one in dataclasses.fields(WriteAttempt))
    run = SimpleNamespace(now=TryKey(2, max_tries))
    given = {"run": run, "grants": lambda error: asked.append(error) or granted}
    attempt = WriteAttempt(**{**fields, **given})
    assert attempt._may_retry() is expected
    assert isinstance(asked[0], WriteConflictError)


def test_a_queue_that_does_not_answer_hides_no_lost_conflict(pair, caplog):
    guard, looking = pair.guard(Unreachable())
    looking.check()
    looking.check()
    assert guard.doomed is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert "no answer" in line
    pair.completes(pair.earlier)
    looking.check()
    assert guard.stop.outcome is Outcome.COMMIT_CONFLICT


def test_the_ended_driver_settles_as_queued_behind_its_rival(pair):
    stop = pair.stop(Lease(**{pair.earlier: OTHER}))
    signature = UnwrittenSignature("i", "d", "r", "t")
    settlement = settle(pair.table, signature, pair.writer(pair.later), -9, stop=stop)
    assert (settlement.outcome, settlement.instant, settlement.rival) == (
        *(Outcome.YIELDED, pair.later, pair.earlier),
    )
    error = settlement.error()
    assert isinstance(error, WriteConflictError)
    told = f"Queued behind: instant {pair.later} gave way to {pair.earlier}"
    assert str(error).startswith(told)
    assert pending_rivals(pair.table, settlement, ["p1"], [pair.later], DEFAULT_RULE) == (pair.earlier,)


def test_a_commit_that_lands_after_the_choice_counts(pair):
    stop = pair.stop(Lease(**{pair.earlier: OTHER}))
    pair.completes(pair.later)
    log = pair.writer(pair.later)
    log.take("x INFO TransactionUtils: Successfully resolved conflicts, if any")
    settlement = settle(pair.table, UnwrittenSignature("i", "d", "r", "t"), log, -9, stop=stop)
    assert (settlement.outcome, settlement.error()) == (Outcome.COMMITTED, None)
