"""A job whose commits are not signed, such as Hudi Streamer: found by its drivers' instants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_occ_provider.attempts.commit import earlier_commit
from airflow_occ_provider.attempts.identity import Signature, UnwrittenSignature
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.settle import settle
from airflow_occ_provider.errors import CommitStateUnknownError
from tests.support.earlier_tries import Tries
from tests.support.hand_made_tables import BEFORE, T0, T1, T2, C, add, begin, log_of

UNWRITTEN = UnwrittenSignature("me", "dag", "run", "task", latest_instant=T0)


def checked(*times):
    log = log_of(*times)
    log.take("x INFO TransactionUtils: Successfully resolved conflicts, if any")
    return log


def test_its_own_completed_instant_is_its_commit(folder, table):
    add(folder, f"{T1}_{C}.commit")
    settlement = settle(table, UNWRITTEN, checked(T1), 0)
    assert (settlement.outcome, settlement.instant) == (Outcome.COMMITTED, T1)
    assert settlement.error() is None


def test_another_job_with_the_same_log_is_of_unknown_state(folder, table):
    add(folder, f"{T1}_{C}.commit")
    signature = Signature("me", "dag", "run", "task", latest_instant=T0)
    assert settle(table, signature, checked(T1), 0).outcome is Outcome.UNKNOWN


def test_commits_of_others_are_not_its_own(folder, table):
    add(folder, f"{T2}_{C}.commit")
    add(folder, f"{T1}_{C}.commit", operation="CLUSTER")
    assert settle(table, UNWRITTEN, checked(T1), 0).commit is None
    begin(folder, T1)
    unfinished = settle(table, UNWRITTEN, checked(T1), 1)
    assert unfinished.commit is None


def test_a_commit_without_a_check_for_conflicts_is_a_misconfiguration(folder, table):
    add(folder, f"{T1}_{C}.commit")
    log = log_of(T1)
    log.take(f"x INFO ActiveTimelineV2: Created new file for toInstant ?{folder}/{T1}_{C}.commit")
    assert settle(table, UNWRITTEN, log, 0).outcome is Outcome.MISCONFIGURATION


def test_a_recorded_instant_of_an_earlier_try_is_its_commit(folder):
    add(folder, f"{T1}_{C}.commit")
    tries = Tries(folder, instants=(T1,), ended_well=True)
    with pytest.raises(CommitStateUnknownError, match="not signed"):
        tries.commit()
    for partition in ("p=1", "p=2", "p=3"):
        (folder.parent / partition).mkdir(exist_ok=True)
    tries.tries = replace(tries.tries, signed=False)
    assert tries.commit().instant.time == T1


def test_an_instant_that_no_try_recorded_is_not_its_commit(folder, table):
    add(folder, f"{T1}_{C}.commit")
    assert earlier_commit(table, ("me",), BEFORE, [T2], signed=False) is None
    assert earlier_commit(table, ("me",), BEFORE, signed=False) is None


def test_the_labels_are_the_same():
    signed = Signature("me", "dag", "run", "task", latest_instant=T0)
    assert UNWRITTEN.options() == signed.options()
