"""Real Spark and Hudi with the locks that need only the table's storage."""

from __future__ import annotations

import time

import pytest

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.embedded.bundle import find_bundle
from airflow_occ_provider.hudi.writer.storage_lock import (
    STORAGE_LOCK_PROVIDER,
    file_lock_options,
    storage_lock_options,
)
from airflow_occ_provider.storage.lock_file import lock_file
from tests.support.stores import LOCAL, Lake, started_store
from tests.support.suspended import resume, suspend
from tests.support.writers import Writer, inflight, wait_for

pytestmark = pytest.mark.real
IN_A_FILE = file_lock_options(expire_min=1, num_retries=24)
IN_A_BUCKET = storage_lock_options(wait_time_ms=60_000, num_retries=3)


def writer_of(stack, table, lock=IN_A_FILE, **given):
    return Writer(stack, table, lock=lock, **given)


@pytest.fixture(scope="module", params=[LOCAL, pytest.param("hdfs", marks=pytest.mark.nightly)])
def lake(request, tmp_path_factory):
    """Where the file of Hudi's lock is: a local disk, or HDFS."""
    folder = tmp_path_factory.mktemp("lake")
    with started_store(request.param, folder / "store") as store:
        yield Lake(folder, store)


@pytest.fixture
def table(lake, request):
    return lake.open(lake.path(request.function.__name__))


@pytest.fixture
def start(hudi_stack, lake, table):
    """Start a writer of the table."""
    given = {"file_system": table.files.file_system}
    if lake.store:
        given["conf"] = lake.store.spark_settings
    return lambda: writer_of(hudi_stack, table.path, **given).start()


def committed(writer):
    settlement = writer.wait()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-6000:]
    return settlement


def assert_refused(writer, name, remedy):
    """Check that the job's first line was not run, for want of a class."""
    settlement = writer.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, writer.log[-3000:]
    assert writer.exit_code == 78
    (line,) = settlement.lines
    why = f"the driver cannot load the class {name} (java.lang.ClassNotFoundException: {name}): "
    assert why in line
    assert remedy in line
    assert not writer.table.exists()


def test_a_driver_without_the_client_of_its_lock_does_not_start(hudi_stack, tmp_path):
    writer = writer_of(hudi_stack, tmp_path / "t", IN_A_BUCKET, scheme="s3a")
    client = "org.apache.hudi.aws.transaction.lock.S3StorageLockClient"
    assert_refused(writer, client, "packages='org.apache.hudi:hudi-aws-bundle:RELEASE'")


@pytest.mark.nightly
def test_a_release_without_the_storage_based_lock_does_not_start(hudi_stack, tmp_path):
    conf = {"spark.jars": str(find_bundle("0.15.0"))}
    defaults = hudi_stack.folder / "spark" / "conf" / "spark-defaults.conf"
    own = tmp_path / "conf"
    own.mkdir()
    (own / "spark-defaults.conf").write_text(defaults.read_text())
    given = {"conf": conf, "environment": {"SPARK_CONF_DIR": str(own)}, "scheme": "s3a"}
    writer = writer_of(hudi_stack, tmp_path / "t", IN_A_BUCKET, **given)
    assert_refused(writer, STORAGE_LOCK_PROVIDER, "this lock needs Hudi 1.1 or later")


def test_the_loser_of_two_writers_is_told_and_lands_later(start, table):
    committed(start())
    loser = start()
    wait_for("the write", lambda: inflight(table), loser)
    suspend(loser.process.pid)
    won = committed(start())
    resume(loser.process.pid)
    lost = loser.wait()
    assert lost.outcome is Outcome.COMMIT_CONFLICT, loser.log[-6000:]
    assert lost.rival == won.instant
    committed(start())
    assert "lock" not in table.files.listing(".hoodie").names


def killed_with_the_lock(writer, table):
    """Kill a driver at a moment at which it holds the lock."""

    def held():
        return lock_file(table, IN_A_FILE).held

    while True:
        wait_for("the lock", held, writer)
        suspend(writer.process.pid)
        if held():
            writer.kill()
            return
        resume(writer.process.pid)


@pytest.mark.nightly
def test_the_lock_of_a_killed_writer_is_taken_over_once_it_has_expired(start, table):
    committed(start())
    dead = start()
    killed_with_the_lock(dead, table)
    assert dead.wait().outcome is Outcome.KILLED
    seen = lock_file(table, IN_A_FILE)
    assert (seen.path, seen.held) == (f"{table.path}/.hoodie/lock", True)
    assert seen.until_ms == seen.since_ms + 60_000
    committed(start())
    assert time.time() * 1000 > seen.until_ms
    assert "lock" not in table.files.listing(".hoodie").names
