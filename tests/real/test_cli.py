"""``airflow hudi`` as a user calls it, with a lock connection in Airflow's own database."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real


@pytest.fixture
def airflow(tmp_path, embedded_zookeeper):
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "COLUMNS": "200"}

    def airflow(*arguments, fails=False):
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert bool(done.returncode) is fails, done.stderr
        return done

    airflow("db", "migrate")
    connection = ("--conn-type", "hudi_zookeeper_lock", "--conn-host", embedded_zookeeper.hosts)
    extra = json.dumps({"lease_root": "/database/leases"})
    airflow("connections", "add", "in_database", *connection, "--conn-extra", extra)
    return airflow


def test_a_connection_in_the_database_is_found_and_only_json_is_printed(airflow):
    listed = airflow("hudi", "leases", "list", "--lock-conn-id", "in_database", "-o", "json")
    assert (listed.stdout, listed.stderr) == ("[]\n", "")
    arguments = ("hudi", "leases", "release", "/t", "--id", "x", "-y", "--lock-conn-id", "in_database")
    refused = airflow(*arguments, fails=True)
    assert "leases release: no request x is in the queue of /t" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
