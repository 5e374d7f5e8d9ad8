"""Real Spark, Hudi and ZooKeeper: SQL, a function and a main class as protected writers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.commit import earlier_commit
from airflow_occ_provider.attempts.jobs import MainClass, Sql, streamer_arguments
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.record import NOTHING_BEFORE
from airflow_occ_provider.errors import CommitStateUnknownError
from airflow_occ_provider.in_driver.run_main import STREAMER
from airflow_occ_provider.storage.table import HudiTable
from tests.support.real_jobs import (
    JOBS,
    MERGE,
    NEW_TABLE,
    committed,
    function,
    main_jar,
    returns_rows,
    rows_are,
)
from tests.support.suspended import resume, suspend
from tests.support.writers import Writer, inflight, served, wait_for

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def table(hudi_stack, tmp_path_factory):
    """A table of four rows, made by a function that returns them."""
    path = tmp_path_factory.mktemp("jobs") / "t"
    job = function(path, returns_rows, first=0, number=4)
    made = committed(Writer(hudi_stack, path, job=job, hudi_options=NEW_TABLE), records=4)
    assert made.commit.metadata.partitions == ("a",)
    return path


@pytest.fixture
def copied(table, tmp_path):
    return Path(shutil.copytree(table, tmp_path / "t"))


def test_a_merge_and_a_function_commit_signed(hudi_stack, copied):
    """A text with a view and a MERGE; then a function, which names no option of the table."""
    committed(Writer(hudi_stack, copied, job=Sql(MERGE, str(copied))), records=2)
    job = function(copied, returns_rows, first=3, number=2)
    committed(Writer(hudi_stack, copied, job=job), records=2)
    rows_are(hudi_stack, copied, {"k0": 0, "k1": 11, "k2": 2, "k3": 3, "k4": 4, "k;9": 9})


@pytest.mark.nightly
def test_an_update_that_loses_is_told_so(hudi_stack, copied):
    """The driver of one UPDATE stands still from its inflight instant until another has committed."""
    loser = Writer(hudi_stack, copied, job=Sql("UPDATE t SET v = 10", str(copied))).start()
    wait_for("the write", lambda: inflight(copied), loser)
    suspend(loser.process.pid)
    winner = Writer(hudi_stack, copied, job=Sql("UPDATE default.t SET v = 20", str(copied)))
    won = committed(winner, records=4)
    resume(loser.process.pid)
    lost = loser.wait()
    assert lost.outcome is Outcome.COMMIT_CONFLICT, loser.log[-6000:]
    assert lost.rival == won.instant
    rows_are(hudi_stack, copied, {f"k{n}": 20 for n in range(4)})


def test_sql_of_another_table_of_the_catalog_is_not_run(hudi_stack, copied, tmp_path):
    other = Path(shutil.copytree(copied, tmp_path / "other"))
    job = JOBS / "sql_beside_another.py"
    writer = Writer(hudi_stack, copied, (str(other),), application=job)
    settlement = writer.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, writer.log[-3000:]
    assert writer.exit_code == 78
    (line,) = settlement.lines
    assert f"which is at file:{other}, and the task's table is {copied}" in line.replace("///", "/")
    assert "no statement was run" in line


@pytest.fixture(scope="module")
def jar(hudi_stack, tmp_path_factory):
    return main_jar(hudi_stack.hudi_version, tmp_path_factory.mktemp("main"))


@pytest.mark.nightly
def test_a_main_class_commits_signed(hudi_stack, copied, jar):
    job = MainClass("jobs.WrittenByMain", jar, (str(copied), "k0", "7"))
    committed(Writer(hudi_stack, copied, job=job), records=1)
    missing = Writer(hudi_stack, copied, job=MainClass("jobs.NotThere", jar))
    settlement = missing.run()
    assert settlement.outcome is Outcome.JOB_ERROR
    assert "java.lang.ClassNotFoundException: jobs.NotThere" in " ".join(settlement.lines)


@pytest.mark.nightly
def test_the_jar_of_a_main_class_is_read_by_its_url(hudi_stack, copied, jar):
    with served(Path(jar).parent) as address:
        job = MainClass("jobs.WrittenByMain", f"{address}/main.jar", (str(copied), "k0", "7"))
        committed(Writer(hudi_stack, copied, job=job), records=1)


@pytest.mark.nightly
def test_unsigned_commits_of_two_rounds_are_found_by_their_drivers_instants(hudi_stack, copied, jar):
    """A class in the place of Hudi Streamer, which signs nothing either."""
    instants = []
    for value in ("8", "9"):
        source = f"k0:{value}"
        arguments = streamer_arguments(
            str(copied), "t", "COPY_ON_WRITE", source=source, ordering="v", operation="upsert"
        )
        job = MainClass(STREAMER, jar, arguments)
        settlement = Writer(hudi_stack, copied, job=job).run()
        assert settlement.outcome is Outcome.COMMITTED
        assert "_airflow_identity" not in settlement.commit.metadata.extra
        instants.append(settlement.instant)
    assert len(set(instants)) == 2
    found = earlier_commit(HudiTable(str(copied)), ["none"], NOTHING_BEFORE, [instants[1]], signed=False)
    assert found.instant.time == instants[1]
    with pytest.raises(CommitStateUnknownError, match="is not signed"):
        earlier_commit(HudiTable(str(copied)), ["none"], NOTHING_BEFORE, [instants[1]])
