"""Spark's own drivers in a real cluster: followed to their end, and under Airflow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.submitter import Ended
from airflow_occ_provider.submitters.kubernetes.cluster import KubernetesCluster
from tests.k8s.cluster.node import ADDRESS, API
from tests.k8s.conftest import left
from tests.k8s.pod_script import api
from tests.k8s.spark import CONNECTION, environment
from tests.k8s.test_pods import read_all, until

ROOT = Path(__file__).parents[2]
RUNS = os.environ.get("RUNS", "20")
JOB = b"""
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("rows:", spark.range(1000).repartition(2).count(), flush=True)
print("said to stderr", file=sys.stderr)
spark._jvm.System.err.println("said by the JVM")
sys.exit(78)
"""


def test_a_driver_of_spark_runs_once_and_tells_its_exit_code(tmp_path):
    def command(conf):
        given = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        submit = ("spark-submit", "--master", f"k8s://{API}", "--deploy-mode", "cluster")
        return [*submit, *given, "local:///etc/airflow-occ/job.py"]

    spark = environment(tmp_path)
    one = KubernetesCluster(api(), api(), command, content={"job.py": JOB}, environment=spark)
    handle = one.submit("spark", lambda _: None)
    assert one.find("spark") == handle
    lines = read_all(one, handle)
    for said in ("rows: 1000\n", "said to stderr\n", "said by the JVM\n"):
        assert lines.count(said) == 1
    assert one.poll(handle) == Ended(78)
    pod = one.api.pod(handle.facts["pod"])
    assert pod.shown["spec"]["restartPolicy"] == "Never"
    kinds = {name.partition("/")[0] for name in left()}
    assert kinds >= {"pod", "secret", "configmap"}  # Spark itself deletes the service
    one.forget("spark")
    until(lambda: not left(), "the cluster's own collector")


def test_two_writers_conflict_one_retries_and_both_land(tmp_path):
    given = {
        **environment(tmp_path / "spark", tmp_path),
        "DEMO_FOLDER": str(tmp_path),
        "DEMO_HOST": ADDRESS,
        "DEMO_SPARK": json.dumps(CONNECTION),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo", "--dags", "dags", "--submitter", "kubernetes"],
        cwd=ROOT,
        env=given,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    print(done.stdout)
    assert "Proven:" in done.stdout
    for task in ("create", "write_a", "write_b"):
        assert re.search(rf"{task} +try 1  deferred", done.stdout)
    until(lambda: not left(), "the cluster's own collector")


@pytest.mark.timeout(10_800)  # twenty of them may take longer than any other test
def test_seeded_faults_lose_and_double_nothing():
    rig = [sys.executable, "-m", "tests.k8s.rig", "--runs", RUNS]
    assert subprocess.run(rig, cwd=ROOT, check=False).returncode == 0
