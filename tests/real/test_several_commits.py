"""Real Spark, Hudi and ZooKeeper: jobs that commit more than once, failed in between or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.errors import JobError, MisconfigurationError
from airflow_occ_provider.storage.table import HudiTable
from tests.support.rows import count_rows
from tests.support.writers import Writer

pytestmark = [pytest.mark.real, pytest.mark.nightly]
JOB = Path(__file__).parents[1] / "jobs" / "several_writes.py"


def test_a_stream_that_fails_between_its_batches_goes_on_from_its_checkpoint(hudi_stack, tmp_path):
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    for number in range(3):
        row = {"k": f"k{number}", "p": "a", "v": number}
        (arrived / f"{number}.json").write_text(json.dumps(row))
    table = tmp_path / "t"

    def run():
        arguments = ("stream", str(tmp_path))
        writer = Writer(hudi_stack, table, application=JOB, arguments=arguments, commits=Commits.MANY)
        return writer, writer.run()

    writer, failed = run()
    assert failed.outcome is Outcome.JOB_ERROR, writer.log[-6000:]
    error = failed.error()
    assert (type(error), error.committed) == (JobError, True)
    writer, done = run()
    assert (done.outcome, done.error()) == (Outcome.COMMITTED, None), writer.log[-6000:]
    commits = [one.time for one in HudiTable(str(table)).snapshot().timeline.completed_writes()]
    assert (*failed.own_writes.committed, *done.own_writes.committed) == tuple(commits)
    assert len(commits) == 3
    assert sum(count_rows(table, "k").values()) == 3


def test_two_tables_in_one_job_are_told(hudi_stack, tmp_path):
    table = tmp_path / "t"
    arguments = ("tables", str(tmp_path))
    writer = Writer(hudi_stack, table, application=JOB, arguments=arguments)
    settlement = writer.run()
    ((time, other),) = settlement.own_writes.elsewhere
    assert other.endswith(f"{table}_too"), writer.log[-6000:]
    error = settlement.error()
    assert isinstance(error, MisconfigurationError)
    assert f"{settlement.instant}, {time} in {other}" in error.message
