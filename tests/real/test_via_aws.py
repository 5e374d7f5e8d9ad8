"""Real Spark and Hudi: drivers that EMR Serverless, EMR's steps and Glue start.

The services are moto with a ``spark-submit`` behind it, and the table is on S3A. Nothing here was run on
AWS. Each starts a driver that fails once more, as EMR Serverless does by its ``retryPolicy``, a step by
YARN's second application attempt, and Glue by its job's retries.
"""

from __future__ import annotations

import json

import pytest
from airflow.providers.amazon.aws.operators.emr import (
    EmrAddStepsOperator,
    EmrServerlessStartJobOperator,
)
from airflow.providers.amazon.aws.operators.glue import GlueJobOperator

from airflow_occ_provider.driver.contract import EXIT_REFUSED
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.errors import OccError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.via import ARGUMENTS, FOLDER, RUNNER
from tests.conftest import SMALL_TABLES
from tests.services.emr import ROLE, emulated_emr
from tests.support.observed import until
from tests.support.session_site import SITE
from tests.support.stores import BUCKET, STORE_CONN_ID
from tests.support.via_runs import raced, write_run

pytestmark = [pytest.mark.real, pytest.mark.nightly]
KILLED = -9
JOB_RUN = {
    "execution_role_arn": ROLE,
    "job_driver": {"sparkSubmit": {"entryPoint": RUNNER, "entryPointArguments": [ARGUMENTS]}},
    "config": {"retryPolicy": {"maxAttempts": 2}},
}
STEP = {
    "Name": "write",
    "ActionOnFailure": "CONTINUE",
    "HadoopJarStep": {
        "Jar": "command-runner.jar",
        "Args": ["spark-submit", RUNNER, ARGUMENTS],
    },
}
GLUE_RUN = {
    "script_location": RUNNER,
    "script_args": {"--scriptLocation": RUNNER, "--airflow_occ_folder": FOLDER},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with EmbeddedS3proxy(tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture
def emr(store, tmp_path, monkeypatch):
    environment = spark_environment(tmp_path / "spark", store=store)
    with (tmp_path / "spark" / "conf" / "spark-defaults.conf").open("a") as conf:
        conf.write(SMALL_TABLES)
    with emulated_emr(environment, tmp_path) as emr:
        emr.starts = 2
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(emr.connection))
        monkeypatch.setenv(f"AIRFLOW_CONN_{STORE_CONN_ID.upper()}", json.dumps(store.connection))
        yield emr


@pytest.fixture
def table(store, tmp_path):
    return store.table(BUCKET, tmp_path.name)


@pytest.fixture(params=[EmrServerlessStartJobOperator, EmrAddStepsOperator, GlueJobOperator])
def run(request, hudi_stack, emr, table, monkeypatch):
    """Return a function that makes the run of a task that writes one table."""
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(hudi_stack.lock_connection))
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__SITE_ID", SITE)
    kwargs = {
        EmrServerlessStartJobOperator: {"application_id": emr.application, **JOB_RUN},
        EmrAddStepsOperator: {"job_flow_id": emr.cluster, "steps": [STEP]},
        GlueJobOperator: {"job_name": emr.job, **GLUE_RUN},
    }

    def run(name, *arguments):
        return write_run(
            name,
            table,
            *arguments,
            via=request.param,
            via_kwargs=kwargs[request.param],
            storage_conn_id=STORE_CONN_ID,
            # A loser fails by itself: of one that was stopped, the service may start no second driver.
            policy={"early_stop": "off"},
        )

    return run


def instants(table):
    snapshot = open_table(table, STORE_CONN_ID).snapshot(missing_ok=True)
    return [instant.time for instant in snapshot.timeline.completed_writes()]


def codes(emr):
    """Return the exit codes of each attempt's drivers, once all of them have ended."""
    with emr.busy:
        return [work.codes for work in emr.work if work.is_over]


def all_codes(emr, count):
    """Return the exit codes of each attempt's drivers, once all of a number of attempts are over."""
    until(lambda: len(codes(emr)) == count, f"the end of all drivers of {count} attempts")
    return codes(emr)


def runs(folder, name):
    """Return how many drivers have run a task's job, whether to its end or not."""
    return len((folder / f"{name}.drivers").read_text().split())


def test_a_loser_is_run_again_by_its_task_and_not_by_the_service(run, emr, table, tmp_path):
    first, winner, loser = raced(run, tmp_path)
    # Its first driver has failed. The second finds no grant, or not even its file.
    until(lambda: any(len(ended) == 2 for ended in codes(emr)), "the service's second driver")
    assert runs(tmp_path, loser.task.task_id) == 1
    again = loser.start().committed()
    assert instants(table) == [first, winner.committed(), again]
    assert sorted(map(len, all_codes(emr, 4))) == [1, 1, 1, 2]
    assert runs(tmp_path, loser.task.task_id) == 2


def test_a_tasks_end_ends_its_driver_and_the_service_starts_none(run, emr, table, tmp_path):
    killed = run("killed", "--gate", str(tmp_path)).start()
    killed.reached(tmp_path / "killed.begun")
    killed.task.on_kill()
    assert isinstance(killed.wait().error, OccError)
    assert all_codes(emr, 1)[0][0] == KILLED
    assert instants(table) == []
    (tmp_path / "killed.go").touch()
    again = killed.start().committed()
    assert instants(table) == [again]
    assert runs(tmp_path, "killed") == 2


def test_a_driver_that_dies_is_not_replaced_by_the_service(run, emr, table, tmp_path):
    lost = run("lost", "--gate", str(tmp_path)).start()
    lost.reached(tmp_path / "lost.begun")
    (tmp_path / "lost.go").touch()  # a second driver would write
    emr.work[0].process.kill()
    assert all_codes(emr, 1) == [[KILLED, EXIT_REFUSED]]
    lost.task.on_kill()
    assert isinstance(lost.wait().error, OccError)
    assert instants(table) == []
    assert runs(tmp_path, "lost") == 1
