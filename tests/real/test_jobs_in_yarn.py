"""A function, SQL and main classes as protected writers, whose drivers run in a real YARN."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.jobs import MainClass, Sql, streamer_arguments
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.embedded.bundle import find_bundle
from airflow_occ_provider.in_driver.run_main import STREAMER
from tests.support.in_yarn import YarnStack, YarnWriter
from tests.support.real_jobs import (
    MERGE,
    NEW_TABLE,
    committed,
    function,
    main_jar,
    returns_rows,
    rows_are,
)

pytestmark = [pytest.mark.real, pytest.mark.yarn, pytest.mark.nightly]


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with YarnStack(tmp_path_factory.mktemp("stack")) as one:
        yield one


@pytest.fixture(scope="module")
def jars(stack, tmp_path_factory):
    """The setting by which Spark sends the jar along, as by the argument ``jars``, beside Hudi's."""
    own = main_jar(stack.hudi_version, tmp_path_factory.mktemp("main"))
    return {"spark.jars": f"{find_bundle(stack.hudi_version)},{own}"}


def test_each_kind_of_job_commits_in_a_container(stack, jars, tmp_path):
    table = tmp_path / "t"

    def writer(job, **more):
        return YarnWriter(stack, table, job=job, **more)

    made = function(table, returns_rows, first=0, number=4)
    committed(writer(made, hudi_options=NEW_TABLE), records=4)
    committed(writer(Sql(MERGE, str(table))), records=2)
    rows = {"k0": 0, "k1": 11, "k2": 2, "k3": 3, "k;9": 9}
    job = MainClass("jobs.WrittenByMain", "", (str(table), "k0", "7"))
    committed(writer(job, conf=jars), records=1)
    rows_are(stack, table, {**rows, "k0": 7}, kind=YarnWriter)
    arguments = streamer_arguments(
        str(table), "t", "COPY_ON_WRITE", source="k0:8", ordering="v", operation="upsert"
    )
    unsigned = writer(MainClass(STREAMER, "", arguments), conf=jars)
    assert unsigned.run().outcome is Outcome.COMMITTED, unsigned.log[-6000:]
    rows_are(stack, table, {**rows, "k0": 8}, kind=YarnWriter)


def test_a_job_that_fails_in_a_container_says_why(stack, jars, tmp_path):
    missing = YarnWriter(stack, tmp_path / "t", job=MainClass("jobs.NotThere", ""), conf=jars)
    settlement = missing.run()
    assert settlement.outcome is Outcome.JOB_ERROR, missing.log[-6000:]
    assert "java.lang.ClassNotFoundException: jobs.NotThere" in " ".join(settlement.lines)


def test_a_driver_that_alone_sees_spark_connect_does_not_start_its_job(stack, tmp_path):
    """The job would write in a server that others share, where nothing is protected.

    A worker refuses the setting where it reads it; options of the JVM of ``spark-submit`` it does not.
    """
    job = function(tmp_path / "t", returns_rows, first=0, number=1)
    unread = {"SPARK_SUBMIT_OPTS": "-Dspark.yarn.appMasterEnv.SPARK_REMOTE=sc://127.0.0.1:1"}
    writer = YarnWriter(stack, tmp_path / "t", job=job, environment=unread, hudi_options=NEW_TABLE)
    settlement = writer.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, writer.log[-6000:]
    assert "SPARK_REMOTE" in " ".join(settlement.lines)
    assert not (tmp_path / "t").exists()
