"""Real Spark, Hudi, ZooKeeper and Kubernetes: drivers in pods that KubernetesPodOperator starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.via import ARGUMENTS, RUNNER
from tests.k8s.cluster.build import SPARK
from tests.k8s.cluster.node import ADDRESS
from tests.k8s.conftest import left
from tests.k8s.rig import OPEN
from tests.k8s.spark import CONTAINERS, NAMESPACE, environment
from tests.support.observed import until
from tests.support.session_site import SITE
from tests.support.via_runs import instants, raced, write_and_end, write_run
from tests.support.writers import JOB


@pytest.fixture
def table(tmp_path):
    """A table that does not exist yet."""
    return tmp_path / "lake" / "t"


@pytest.fixture
def run(tmp_path, table, monkeypatch):
    """Return a function that makes the run of a task that writes the table in a pod."""
    spark = tmp_path / "spark"
    environment(spark, tmp_path, JOB.parent)
    kwargs = {
        "namespace": NAMESPACE,
        "pod_template_file": str(spark / "driver.json"),
        "base_container_name": CONTAINERS["driver"],
        "image": SPARK,
        "image_pull_policy": "Never",
        "env_vars": {"SPARK_CONF_DIR": str(spark)},
        "cmds": [str(Path(pyspark_home(), "bin", "spark-submit"))],
        "arguments": ["--master", "local[2]", RUNNER, ARGUMENTS],
        "startup_timeout_seconds": 1800,  # a busy machine takes longer than the default of 120 s
    }
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__SITE_ID", SITE)
    with EmbeddedZookeeper(tmp_path / "zookeeper", settings=OPEN) as zookeeper:
        lock = {"conn_type": "hudi_zookeeper_lock", "host": f"{ADDRESS}:{zookeeper.port}"}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps({**lock, "extra": {"base_path": "/locks"}}))

        def run(name, *arguments):
            return write_run(name, table, *arguments, via=KubernetesPodOperator, via_kwargs=kwargs)

        yield run


def test_a_pod_writes_under_protection_and_is_ended_with_its_task(run, table, tmp_path):
    write_and_end(run, table, tmp_path, left)


def test_a_writer_that_loses_is_retried_in_another_pod(run, table, tmp_path):
    first, winner, loser = raced(run, tmp_path)
    again = loser.start().committed()
    assert instants(table) == [first, winner.committed(), again]
    until(lambda: not left(), "the removal of all pods")
