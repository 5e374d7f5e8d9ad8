"""Real Spark and Hudi: a driver on standby warms up, and writes once its lease is held."""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.write_spec import WritePolicy
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.standalone import (
    PlainLocks,
    Program,
    PythonFile,
    SparkSubmit,
    StorageLeases,
    WriteSpec,
    ZookeeperAccess,
    ZookeeperLock,
)
from tests.support.observed import Beside, file_names, processes_in, until
from tests.support.via_runs import instants

pytestmark = pytest.mark.real
TRACE = re.compile("standby|hello")
JOB = Path(__file__).parents[1] / "jobs" / "gated_write.py"


def test_a_warm_driver_commits_once_and_leaves_no_trace_of_its_warm_up(
    hudi_stack, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    scratch, table = tmp_path / "scratch", tmp_path / "lake" / "t"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    leases = StorageLeases(str(tmp_path / "leases"), ttls=Terms(60_000, 600_000), poll_s=1)
    locks = PlainLocks(ZookeeperLock(ZookeeperAccess(hudi_stack.zookeeper.hosts)), leases)
    variables = {**hudi_stack.environment, "TMPDIR": str(scratch)}
    spark = SparkSubmit("local[2]", environment=variables)
    program = Program("trips", locks=locks, spark=spark, journals=tmp_path / "journals")
    queue = locks.leases()
    holder = queue.request(
        Request("holder", Owner(("holder", "1", "write")), (Scope.of(str(table), None),), 600_000)
    )
    spec = WriteSpec(str(table), PythonFile(str(JOB), (str(table),)), policy=WritePolicy(standby=True))
    writing = Beside(lambda: program.write(spec, "1"))
    writing.until(lambda: any(map(TRACE.match, file_names(scratch) - {"standby"})), "a warm driver")
    assert not table.exists()
    queue.release(holder)
    facts = writing.result()
    assert instants(table) == [facts["instant"]]
    assert "the driver stood by for" in caplog.text
    assert "did not warm up" not in caplog.text
    assert "airflow_occ_standby" in caplog.text  # in Hudi's log
    assert queue.requests() == ()
    queue.close()
    until(lambda: not processes_in(scratch), "the end of all processes")
    assert not any(map(TRACE.match, file_names(scratch)))
