"""Real Spark, Hudi and ZooKeeper: the program of the how-to page, where there is no Airflow."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.observed import until
from tests.support.standalone_site import PROGRAM, link_packages
from tests.support.via_runs import instants

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]


@dataclass
class Started:
    process: subprocess.Popen
    log_file: Path

    @property
    def log(self):
        return self.log_file.read_text()

    def instant(self):
        """Return the instant of the facts that the program prints at its end."""
        printed, _ = self.process.communicate()
        assert self.process.returncode == 0, self.log
        return ast.literal_eval(printed)["instant"]


@pytest.fixture
def start(tmp_path, hudi_stack):
    """Return a function that starts the program, with the packages that the page installs alone."""
    (tmp_path / "trips.py").write_text(PROGRAM)
    shutil.copy(ROOT / "tests" / "jobs" / "gated_write.py", tmp_path / "upsert_trips.py")
    packages = tmp_path / "packages"
    link_packages(packages)
    environment = {**hudi_stack.environment, "ZOOKEEPER": hudi_stack.zookeeper.hosts}
    environment["JOURNALS"] = str(tmp_path / "journals")
    environment["PYTHONPATH"] = str(packages)
    without_site = [sys.executable, "-S"]  # so no package of this environment is found
    command = [*without_site, "-c", "import airflow"]
    tried = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert b"No module named 'airflow'" in tried.stderr
    started = []

    def start(run_id, *arguments):
        log_file = tmp_path / f"{run_id}.{len(started)}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*without_site, "trips.py", str(tmp_path / "lake" / "t"), run_id, *arguments],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        started.append(process)
        return Started(process, log_file)

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_two_programs_lose_and_retry_and_a_run_never_writes_twice(start, tmp_path):
    first = start("first").instant()
    gate = tmp_path / "gate"
    gate.mkdir()

    def at_gate(run_id):
        return start(run_id, "--writer", run_id, "--gate", str(gate))

    winner, loser = at_gate("winner"), at_gate("loser")
    for run_id in ("winner", "loser"):
        until((gate / f"{run_id}.begun").exists, f"the write of {run_id}")
    (gate / "winner.go").touch()
    won = winner.instant()
    (gate / "loser.go").touch()
    retried = loser.instant()
    assert instants(tmp_path / "lake" / "t") == [first, won, retried]
    assert re.search(r"Retry in 0 s: \[conflict, retry 1 of 5\]", loser.log)
    assert "order token" in loser.log  # of its place in the queue
    drivers = (gate / "loser.drivers").read_text()
    assert at_gate("loser").instant() == retried
    assert (gate / "loser.drivers").read_text() == drivers
