"""Real Hudi: the guard refuses a commit on the thread that commits, or lets it pass and names it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from airflow_occ_provider.embedded.bundle import HUDI_VERSION
from airflow_occ_provider.embedded.spark import spark_environment
from tests.conftest import SMALL_TABLES
from tests.jobs.guarded_writes import PREFIX
from tests.support.stores import BUCKET, started_store
from tests.support.writers import NO_METADATA_TABLE, QUIET

pytestmark = pytest.mark.real
JOB = Path(__file__).parents[1] / "jobs" / "guarded_writes.py"
TYPE, VERSION = "hoodie.datasource.write.table.type", "hoodie.write.table.version"
COW, MOR = {TYPE: "COPY_ON_WRITE"}, {TYPE: "MERGE_ON_READ"}
V6 = {VERSION: "6", "hoodie.write.auto.upgrade": "false"}
FIRST = [COW | NO_METADATA_TABLE, MOR | V6 | NO_METADATA_TABLE]
MORE = [MOR | NO_METADATA_TABLE, COW | V6, COW]
OF_0_15 = [COW | NO_METADATA_TABLE, MOR]
PLACE, LINE = "refused to complete", "refused a commit"


def cases_of(hudi, folder, url, cells, store=None):
    """Run the writes in a driver; what it printed, by case, for each cell and after them."""
    environment = spark_environment(folder, hudi, store)
    with (folder / "conf" / "spark-defaults.conf").open("a") as conf:
        conf.write(SMALL_TABLES)
    (folder / "conf" / "log4j2.properties").write_text(QUIET)
    path = os.pathsep.join([str(JOB.parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["spark-submit", "--master", "local[1]", str(JOB), url, json.dumps(cells)],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    lines = done.stdout.splitlines()
    cases = [json.loads(line.removeprefix(PREFIX)) for line in lines if line.startswith(PREFIX)]
    others = {case["case"]: case for case in cases if "new" not in case}
    return others, [case for case in cases if "new" in case]


def assert_refused(write, case, reason, way=PLACE):
    assert write["case"] == case
    assert f"airflow_occ_provider {way}" in write["error"]
    assert reason in write["error"]
    assert (write["new"], write["passing"]) == ([], None)


def assert_guarded(writes, cells):
    """Only the write of the open guard is there, and it alone is named."""
    *writes, margin, answered, line = writes
    for _ in cells:
        passed, closed, over, *writes = writes
        assert (passed["case"], passed["error"]) == ("open", "")
        assert len(passed["new"]) == 1
        assert passed["committed"] == closed["committed"] == passed["new"]
        assert (passed["closed"], passed["passing"], closed["closed"]) == (False, None, True)
        assert_refused(closed, "closed", "its driver ends")
        assert_refused(over, "over", "the lease is over")
    assert writes == []
    assert_refused(margin, "margin", "too little of the lease is left")
    assert (answered["case"], answered["error"], len(answered["new"])) == ("answered", "", 1)
    assert_refused(line, "log", "too little of the lease is left", LINE)


def assert_followed(others, *, shown):
    """A commit that had begun is named until the storage has answered."""
    begun = others["begun"]
    assert begun["during"] == [True, "5", []]
    assert begun["after"] == [True, None, ["5"] if shown else []]
    assert begun["shown"] is shown
    assert ("its driver ends" in begun["error"]) is not shown
    unanswered = others["unanswered"]  # by an error it is not known what became of the commit
    assert unanswered["after"] == [False, "5" if unanswered["renamed"] is None else None, []]
    assert not unanswered["renamed"]
    assert others["ways"]["uncached"] is None
    assert "Hadoop makes org.apache.hadoop.fs.RawLocalFileSystem for" in others["ways"]["other"]
    assert 'No FileSystem for scheme "none"' in others["ways"]["missing"]


def test_a_guarded_driver_commits_only_while_it_may(tmp_path):
    others, writes = cases_of(HUDI_VERSION, tmp_path / "spark", f"file://{tmp_path}/t", FIRST)
    assert_guarded(writes, FIRST)
    assert_followed(others, shown=True)


@pytest.mark.nightly
@pytest.mark.parametrize("hudi", ["0.15.0", "1.0.2", "1.1.1", HUDI_VERSION])
def test_a_guarded_driver_of_each_release_commits_only_while_it_may(tmp_path, hudi):
    cells = OF_0_15 if hudi == "0.15.0" else FIRST + MORE
    others, writes = cases_of(hudi, tmp_path / "spark", f"file://{tmp_path}/t", cells)
    assert_guarded(writes, cells)
    assert_followed(others, shown=True)


@pytest.mark.nightly
@pytest.mark.parametrize("hudi", ["0.15.0", "1.0.2", "1.1.1", HUDI_VERSION])
@pytest.mark.parametrize(("store", "shown"), [("s3", False), ("hdfs", True)])
def test_a_guarded_driver_commits_to_a_store_only_while_it_may(tmp_path, hudi, store, shown):
    """An object store shows a file when it is closed, HDFS when it is created."""
    cells = OF_0_15[:1] if hudi == "0.15.0" else FIRST
    with started_store(store, tmp_path / store) as running:
        url = running.table(BUCKET, "t")
        others, writes = cases_of(hudi, tmp_path / "spark", url, cells, running)
    assert_guarded(writes, cells)
    assert_followed(others, shown=shown)
