"""Spark's own drivers in a real cluster: followed to their end, and under Airflow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import NO_LIMIT
from airflow_occ_provider.attempts.submission import SparkJob, offered
from airflow_occ_provider.attempts.submitter import Ended
from airflow_occ_provider.places.kubernetes import of_pod
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.kubernetes_place import KubernetesPlace
from tests.k8s.cluster.node import ADDRESS, API
from tests.k8s.conftest import left
from tests.k8s.pod_script import api
from tests.k8s.spark import CONNECTION, environment
from tests.support.observed import until

ROOT = Path(__file__).parents[2]
RUNS = os.environ.get("RUNS", "20")
JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
assert spark.range(1000).repartition(2).count() == 1000
sys.exit(78)
"""


class Submitted:
    """Spark's own ``spark-submit``."""

    start_limit = NO_LIMIT

    def __init__(self, runner, folder, environment):
        self._runner, self._folder, self.environment = runner, folder, environment

    def command(self, conf):
        settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        submit = ("spark-submit", "--master", f"k8s://{API}", "--deploy-mode", "cluster")
        return [*submit, *settings, of_pod(self._runner), self._folder]


def test_a_driver_of_spark_runs_once_and_tells_its_exit_code(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    job, key = SparkJob(str(tmp_path / "job.py")), "spark"
    folder = AttemptFolder(f"file://{tmp_path}/run/{key}/1")
    with offered(job, {IDENTITY_KEY: key}, folder) as submission:
        runner, (url,) = submission.application, submission.arguments
        launched = Submitted(runner, url, environment(tmp_path / "spark", tmp_path))
        place = KubernetesPlace(api(), launch=launched, identity=key, application="A job: 1")
        driver = FolderDriver(AttemptFolder, place, submission)
        handle, entries = driver.submit(lambda _: None), []
        until(lambda: (read := driver.read(handle, 0.1)) is None or entries.extend(read), "the end")
    assert driver.poll(handle) == Ended(78)
    kinds = [entry["fact"] for entry in entries if not isinstance(entry, str)]
    assert kinds.count("protected") == kinds.count("end") == 1
    assert any("The last lines of the log" in entry for entry in entries), "it has failed"
    pod = api().pod(handle.facts["pod"])
    assert pod.shown["spec"]["restartPolicy"] == "Never"
    kinds = {name.partition("/")[0] for name in left()}
    assert kinds >= {"pod", "configmap"}  # Spark itself deletes the service
    place.forget(key)
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
