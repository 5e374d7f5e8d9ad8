"""A rogue writer: it considers live writers dead, deletes their files, and their commits are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from airflow_occ_provider.attempts.commit import earlier_commit
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.errors import DataLossError, RolledBackError
from airflow_occ_provider.hudi.doctor.finding import Severity
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.processes import end_processes
from tests.support.writers import JOB, Writer, commit_lock_held, inflight, wait_for

pytestmark = [pytest.mark.real, pytest.mark.nightly]
PARTITIONS = 60
MANY = ("--rows", str(PARTITIONS), "--partitions", str(PARTITIONS))
ONE_BY_ONE = ("--option", "hoodie.rollback.parallelism=1")


def data_files(table):
    return {path.name for path in table.glob("*/*.parquet")}


def start_rogue(stack, table):
    """The same job with default settings: a single writer that cleans eagerly."""
    return subprocess.Popen(
        ["spark-submit", "--master", "local[1]", str(JOB), str(table), "--writer", "rogue", *ONE_BY_ONE],
        env=stack.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop_once(rogue, happened):
    """Suspend the rogue as soon as something has happened."""
    deadline = time.monotonic() + 600
    while not happened():
        assert rogue.poll() is None, "the rogue ended before"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.killpg(rogue.pid, signal.SIGSTOP)


def attacked(stack, table, *arguments):
    """Run a protected write whose files a rogue writer deletes just before it commits."""
    Writer(stack, table, hudi_options={}).run()
    victim = Writer(stack, table, (*MANY, *arguments), hudi_options={}).start()
    wait_for("the write", lambda: inflight(table), victim)
    (instant,) = inflight(table)

    def written():
        return {name for name in data_files(table) if instant in name}

    with commit_lock_held(stack.zookeeper.hosts):
        wait_for("all its files", lambda: len(written()) == PARTITIONS, victim)
        rogue = start_rogue(stack, table)
        try:
            stop_once(rogue, lambda: len(written()) < PARTITIONS)
        except BaseException:
            end_processes("", rogue.pid)
            raise
    try:
        settlement = victim.wait()
    finally:
        end_processes("", rogue.pid)
    assert victim.exit_code == 0, victim.log[-3000:]
    assert settlement.outcome is Outcome.ROLLED_BACK
    return victim, settlement


def rollback(table):
    (found,) = (i for i in HudiTable(str(table)).snapshot().timeline if i.action == "rollback")
    return found.time


def test_a_commit_whose_files_a_rogue_deleted_is_a_data_loss(hudi_stack, tmp_path):
    """Exit code 0, completed in the timeline, files gone."""
    table = tmp_path / "t"
    victim, settlement = attacked(hudi_stack, table, "--option", "hoodie.clean.automatic=false")
    error = settlement.error()
    assert isinstance(error, DataLossError)
    assert (error.retry, error.committed) == (False, True)
    assert f"rollback {rollback(table)}" in str(error)
    assert settlement.loss.missing
    assert {name.rpartition("/")[2] for name in settlement.loss.missing}.isdisjoint(data_files(table))
    with pytest.raises(DataLossError):
        earlier_commit(HudiTable(str(table)), (victim.identity,))
    found = {one.check: one for one in examine(HudiTable(str(table)))}
    assert settlement.instant in found["lost_files"].instants
    assert found["eager_cleaner"].instants == (settlement.instant, rollback(table))
    assert found["eager_cleaner"].severity is Severity.ERROR


def test_a_commit_that_its_own_clean_rolls_back_is_never_a_success(hudi_stack, tmp_path):
    """Exit code 0, but the job's own clean finished the rogue's rollback: the instant is gone."""
    table = tmp_path / "t"
    _, settlement = attacked(hudi_stack, table)
    error = settlement.error()
    assert isinstance(error, RolledBackError)
    assert (error.retry, error.committed) == (False, False)
    assert f"rollback {rollback(table)} took back {settlement.instant}" in str(error)
