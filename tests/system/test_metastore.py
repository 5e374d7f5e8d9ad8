"""A Hive metastore as lock in a real Airflow: leases, their queue, and the one table of a job."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks, MetastoreStore
from airflow_occ_provider.leases.queue import Queue
from tests.support.airflow_runs import error_of
from tests.support.rows import count_rows
from tests.system.rivals import commits, conf, wait_for_state

pytestmark = pytest.mark.system


@pytest.fixture
def queue(metastore):
    locks = MetastoreLocks(MetastoreClient(MetastoreAccess(metastore.uris)), "airflow_occ_leases")
    with closing(Queue(MetastoreStore(locks, metastore.lock_timeout_s))) as queue:
        yield queue


@pytest.mark.nightly
def test_a_lease_in_the_metastore_covers_a_run_and_a_rival_waits(queue, start, tmp_path):
    paths = conf(tmp_path)
    gate = paths["gate"]
    run = start("in_metastore", **paths)
    run.wait_for((gate / "w.begun").exists, "the write")
    rival = start("rival_in_metastore", **paths)
    wait_for_state(rival, "write", "deferred")
    log = rival.log("write")
    both = "Blocked by 2 earlier requests: in_metastore / "  # the lease, and the writer under it
    assert both in log, f"{log}\n{run.log('lease')}\n{queue.requests()}"
    assert "A request that is not renewed within its TTL is removed by the next waiter." in log
    (gate / "w.go").touch()
    for one in (run.wait(), rival.wait()):
        assert one.task("write")["state"] == "success", one.log("write")[-4000:]
        assert "commit_conflict" not in one.log("write")
    assert len(commits(paths["table"])) == 2
    assert set(count_rows(paths["table"]).values()) == {1}
    assert queue.requests() == ()


@pytest.mark.nightly
def test_a_job_that_writes_a_second_table_is_stopped_with_an_error(airflow, locks, start, tmp_path):
    paths = conf(tmp_path)
    run = start("two_tables", **paths).wait()
    task = run.task("write")
    assert (task["state"], task["try_number"]) == ("failed", 1), run.log("write")[-4000:]
    error = error_of(airflow, run, "write")
    assert f"the job began to write {paths['other']} beside {paths['table']}" in error
    assert "write each table by a task of its own" in error
    assert not paths["table"].exists()
    assert commits(paths["other"]) == []
    assert queue.requests() == ()
