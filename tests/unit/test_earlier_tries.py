"""What earlier tries have left, on tables made by hand; the real thing is in ``tests/faults``."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.earlier_tries import EarlierTries, end_earlier_drivers
from airflow_occ_provider.attempts.record import NOTHING_BEFORE
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.errors import CommitStateUnknownError, DataLossError, FenceError
from airflow_occ_provider.places.of_task import follower
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.processes import DriverProcess
from airflow_occ_provider.task.run import open_journal
from tests.golden.table_archive import unpack
from tests.support.earlier_tries import LOG, RULE, Tries
from tests.support.hand_made_tables import T1, add, begin
from tests.support.local_drivers import handle_of
from tests.support.rollbacks import LATE, MADE, ROLLBACK, roll_back
from tests.support.task_state import Instance

GOLDEN = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"
LOST = handle_of(DriverProcess(42, 0, "far", "b", "n"))


def committed(folder, tries):
    add(folder, f"{T1}_{MADE}.commit", identity=tries.identity)
    for partition in ("p=1", "p=2", "p=3"):
        (folder.parent / partition).mkdir(exist_ok=True)


def test_a_run_that_has_not_begun_asks_no_table(tmp_path):
    """Also not one whose archive cannot be read."""
    table = unpack(GOLDEN.parent / "1.0.2" / "upgraded.zip", tmp_path / "t")
    run = open_journal({"ti": Instance(1, 14)})
    tries = EarlierTries(run, HudiTable, RULE, clean=lambda _: None, log=LOG)
    assert tries.commit(str(table), "d") is None
    run.begin("d", NOTHING_BEFORE)
    with pytest.raises(CommitStateUnknownError):
        tries.commit(str(table), "d")


def test_other_arguments_are_the_same_work_in_a_retry_and_undecided_after_a_clear(folder):
    retry = Tries(folder, end="exit code 0", ended_well=True)
    committed(folder, retry)
    assert retry.commit("other").instant.time == T1
    cleared = Tries(folder, max_tries=16, end="exit code 0", ended_well=True)
    add(folder, f"{T1}_{MADE}.commit", identity=cleared.identity)
    assert cleared.commit().instant.time == T1
    with pytest.raises(CommitStateUnknownError, match="is unknown"):
        cleared.commit("other")


@pytest.mark.parametrize(("end", "fenced"), [("", True), ("exit code 1", False)])
def test_a_completed_commit_is_never_rolled_back_but_the_statement_is_shown(folder, end, fenced):
    tries = Tries(folder, instants=(T1,), driver=LOST, end=end)
    committed(folder, tries)
    roll_back(folder, T1, f"{ROLLBACK}_{LATE}.rollback")
    with pytest.raises(DataLossError) as told:
        tries.commit()
    assert tries.cleaned == []
    assert ("fenced the driver of an earlier try" in told.value.message) == fenced
    statement = f"CALL rollback_to_instant(table => 't', instant_time => '{T1}')"
    assert f"run {statement} in Spark SQL" in told.value.remedy


def test_an_observed_end_retires_the_ghost_and_settles(folder):
    begin(folder, T1)
    tries = Tries(folder, instants=(T1,), end="exit code 1", log_read=True)
    assert tries.tries.settle() is None
    assert not (folder / ".heartbeat" / T1).exists()
    assert tries.run.record.unsettled == ()
    assert tries.cleaned == []


def test_a_driver_without_an_observed_end_is_waited_for_and_named(folder):
    begin(folder, T1)
    tries = Tries(folder, instants=(T1,), driver=LOST)
    end_earlier_drivers(tries.run, follower, LOG)
    wait = tries.tries.settle()
    assert (wait.table, wait.instants) == (tries.path, (T1,))
    assert "process 42 on far" in tries.run.record.waiting.reason


def test_and_fenced_when_it_has_stopped_beating(folder):
    begin(folder, T1)
    (folder / ".heartbeat" / T1).unlink()
    tries = Tries(folder, instants=(T1,), driver=LOST)
    assert tries.tries.settle() is None
    assert tries.cleaned == [tries.path]
    assert tries.run.record.unsettled == ()


def test_a_clean_that_does_nothing_is_no_fence(folder):
    begin(folder, T1)
    (folder / ".heartbeat" / T1).unlink()
    tries = Tries(folder, instants=(T1,), driver=LOST)
    with pytest.raises(FenceError, match="lazy clean"):
        tries._tries(lambda _: None).settle()


def test_a_driver_on_this_host_is_ended_and_its_files_go(folder):
    tries = Tries(folder)
    environment = {**os.environ, IDENTITY_VARIABLE: tries.identity}
    driver = subprocess.Popen(["sleep", "64"], env=environment, start_new_session=True)
    left = Path(tempfile.mkstemp(prefix=f"airflow_occ_{tries.identity}_")[1])
    tries.run.keep(
        replace(tries.attempt, driver=handle_of(DriverProcess.of(driver.pid), tries.identity))
    )
    end_earlier_drivers(tries.run, follower, LOG)
    assert driver.wait(timeout=10) != 0
    assert not left.exists()
    assert tries.attempt.end == "ended by try 2"
    assert tries.tries.settle() is None


def test_a_driver_that_hid_its_environment_is_found_by_its_session(folder):
    tries = Tries(folder)
    driver = subprocess.Popen(["sleep", "65"], start_new_session=True)
    tries.run.keep(
        replace(tries.attempt, driver=handle_of(DriverProcess.of(driver.pid), tries.identity))
    )
    end_earlier_drivers(tries.run, follower, LOG)
    assert driver.wait(timeout=10) != 0


def test_a_stranger_with_the_drivers_old_process_id_lives_on(folder):
    tries = Tries(folder)
    stranger = subprocess.Popen(["sleep", "66"], start_new_session=True)
    who = DriverProcess.of(stranger.pid)
    tries.run.keep(replace(tries.attempt, driver=handle_of(replace(who, started=who.started - 1))))
    end_earlier_drivers(tries.run, follower, LOG)
    assert stranger.poll() is None
    assert tries.attempt.end == "found ended"
    stranger.kill()
    stranger.wait()
