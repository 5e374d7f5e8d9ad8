"""A program without Airflow: its journal, its command, and what it repeats."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import psutil
import pytest

from airflow_occ_provider import standalone
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.scope import Isolation
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.errors import ConfigurationError, StateStoreError
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.retry import DEFAULT_BUDGETS, ConflictRetry
from airflow_occ_provider.standalone import (
    GivenLock,
    MetastoreAccess,
    MetastoreLeases,
    MetastoreLock,
    PlainLocks,
    Program,
    PythonFile,
    SparkSubmit,
    StorageLeases,
    StorageLock,
    WriteSpec,
    ZookeeperAccess,
    ZookeeperLeases,
    ZookeeperLock,
)
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.processes import Flag
from tests.support.observed import until
from tests.support.patched import only_in
from tests.support.standalone_site import PROGRAM, link_packages

SECRET = "a/b+c=d"


@pytest.fixture
def program(tmp_path):
    """Return a function that makes a program; its `spark-submit` is a script."""
    (tmp_path / "job.py").touch()

    def program(script="exit 1", **fields):
        submit = tmp_path / "bin" / "spark-submit"
        submit.parent.mkdir(exist_ok=True)
        submit.write_text(f"#!/bin/sh\n{script}\n")
        submit.chmod(0o755)
        return Program(
            "trips",
            locks=PlainLocks(StorageLock(), StorageLeases(str(tmp_path / "leases"))),
            spark=SparkSubmit(binary=str(submit), environment={"SPARK_HOME": str(tmp_path)}),
            journals=tmp_path / "journals",
            **fields,
        )

    return program


@pytest.fixture
def spec(tmp_path):
    return WriteSpec(f"{tmp_path}/lake/t", PythonFile(f"{tmp_path}/job.py"))


def journal_of(tmp_path):
    return json.loads((tmp_path / "journals" / "trips,1%2F2.json").read_text())


def test_the_program_of_the_page_is_short_and_needs_only_what_the_page_installs(tmp_path):
    assert len([line for line in PROGRAM.splitlines() if line]) <= 15
    link_packages(tmp_path / "packages")
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import airflow_occ_provider.standalone"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_a_secret_is_not_on_the_command_line(tmp_path):
    spark = SparkSubmit("local[2]", options={"jars": "hudi.jar"}, environment={"A": "b"})
    submission = Submission("file:///r.py", AttemptFolder("/a"), b"", folder=str(tmp_path))
    conf = {"spark.ssl.keyPassword": SECRET, "spark.executor.memory": "2g"}
    launch = standalone._Launch(spark, "trips.1", conf, submission, {"spark.x": "1"}, Flag())
    file = f"{tmp_path}/spark.properties"
    assert launch.command() == [
        *("spark-submit", "--master", "local[2]", "--name", "trips.1", "--jars", "hudi.jar"),
        *("--properties-file", file, "--conf", "spark.executor.memory=2g", "file:///r.py", "/a"),
    ]
    assert launch.environment == {**os.environ, "A": "b"}


def test_a_failure_before_a_driver_is_retried_by_its_budget(monkeypatch, program, spec, tmp_path):
    waits = []
    only_in(monkeypatch, standalone, "time", sleep=waits.append)
    with pytest.raises(standalone.OccError, match="spark-submit ended with exit code 1"):
        program().write(spec, "1/2")
    assert 0 < len(waits) == journal_of(tmp_path)["last_try"]["number"] - 1
    again = len(waits)
    with pytest.raises(standalone.OccError):
        program().write(spec, "1/2")
    assert journal_of(tmp_path)["last_try"]["number"] == 2 * (again + 1)  # the journal goes on


def test_a_run_has_one_process_at_a_time(program, spec, tmp_path):
    with (
        standalone._JournalFile.of_run(tmp_path / "journals", "trips", "1/2"),
        pytest.raises(StateStoreError, match=r"another process writes the run of .*trips,1%2F2\.json"),
    ):
        program().write(spec, "1/2")


def test_a_lease_that_another_program_holds_is_waited_for(monkeypatch, program, spec, tmp_path):
    other = Request("i", Owner(("other", "1", "write")), (Scope(f"{tmp_path}/lake/t"),), 60_000)
    locks = program().locks
    with closing(locks.leases()) as queue:
        ticket = queue.request(other)
        wait_for_lease = standalone._Try._wait_for_lease

        def released(run, wait):
            queue.release(ticket)
            wait_for_lease(run, wait)

        monkeypatch.setattr(standalone._Try, "_wait_for_lease", released)
        only_in(monkeypatch, standalone, "time", sleep=lambda _: None)
        with pytest.raises(standalone.OccError, match="spark-submit ended with exit code 1"):
            program().write(spec, "1/2")
        assert queue.requests() == ()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_is_asked_to_stop_leaves_nothing_behind(program, spec, tmp_path, end):
    began = tmp_path / "began"
    ours = program(
        f"""for folder; do :; done
        echo {{}} >$folder/hello.stand_in
        until test -e $folder/grant; do sleep 0.05; done
        echo $$ >{began}.new; mv {began}.new {began}; exec sleep 600"""
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = f"""
import signal
from airflow_occ_provider.standalone import *
signal.signal(signal.SIGINT, signal.default_int_handler)
locks = PlainLocks(StorageLock(), StorageLeases({str(tmp_path / "leases")!r}))
spark = SparkSubmit(binary={ours.spark.binary!r}, environment={{"SPARK_HOME": {str(tmp_path)!r}}})
program = Program("trips", locks=locks, spark=spark, journals={str(tmp_path / "journals")!r})
program.write(WriteSpec({spec.table!r}, PythonFile({str(tmp_path / "job.py")!r})), "1/2")
"""
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(scratch)})
    try:
        until(began.exists, "the start of the driver")
        process.send_signal(end)
        assert process.wait(120) in (-end, 128 + end)
    finally:
        process.kill()
    assert not psutil.pid_exists(int(began.read_text()))
    assert list(scratch.iterdir()) == []
    with closing(ours.locks.leases()) as queue:
        assert queue.requests() == ()
    (attempt,) = journal_of(tmp_path)["attempts"]
    assert attempt["outcome"] == "ended"


def test_leases_never_live_where_hudis_locks_do():
    with pytest.raises(ConfigurationError, match=r"lease_root: .*overlap"):
        ZookeeperLeases(ZookeeperAccess("zk1:2181"), "/hudi/locks/leases", locks_root="/hudi/locks")


def test_choices_by_name_are_choices_and_one_partition_is_no_letters():
    spec = WriteSpec(
        "/t", PythonFile("/j.py"), partitions="dt=1", isolation="serializable", commits="many"
    )
    assert (spec.partitions, spec.isolation, spec.commits) == (
        ("dt=1",),
        Isolation.SERIALIZABLE,
        Commits.MANY,
    )
    with pytest.raises(ConfigurationError, match="isolation: 'serialisable' is not known"):
        replace(spec, isolation="serialisable")


def test_other_work_is_another_run(program, spec, tmp_path):
    def fails(spec, match):
        with pytest.raises(standalone.OccError, match=match):
            program(rules=ConflictRetry(dict.fromkeys(DEFAULT_BUDGETS, 0))).write(spec, "1/2")

    fails(spec, "exit code 1")
    fails(
        replace(spec, partitions=("dt=1",)), r"run_id: run '1/2' of 'trips' has begun with another job"
    )
    fails(spec, "exit code 1")


def test_what_is_not_safe_is_refused_at_once(program, tmp_path):
    for options in ({"deploy-mode": "cluster"}, {"conf": "spark.a.password=b"}):
        with pytest.raises(ConfigurationError, match="options: "):
            SparkSubmit(options=options)
    with pytest.raises(ConfigurationError, match="journals: 'journals' is not an absolute path"):
        replace(program(), journals="journals")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hoodie.write.lock.wait_time_ms": "1"}, "they do not name hoodie.write.lock.provider"),
        ({LOCK_PROVIDER: "a.B", "hoodie.clean.failed.writes.policy": "EAGER"}, "EAGER"),
    ],
)
def test_a_lock_by_its_options_cannot_remove_the_protection(options, said):
    with pytest.raises(ConfigurationError, match=said):
        GivenLock(options)


def test_hudis_lock_and_the_leases_are_never_in_one_place():
    zookeeper, metastore = ZookeeperAccess("z:1"), MetastoreAccess("thrift://h:1")
    for lock, leases in (
        (ZookeeperLock(zookeeper, "/airflow_occ"), ZookeeperLeases(zookeeper)),
        (MetastoreLock(metastore, database="airflow_occ_leases"), MetastoreLeases(metastore)),
    ):
        with pytest.raises(ConfigurationError):
            PlainLocks(lock, leases)
    locks = PlainLocks(MetastoreLock(metastore, heartbeat_ms=7), MetastoreLeases(metastore))
    assert locks.lease_backend.heartbeat_ms == 7


@pytest.mark.parametrize(
    ("lock", "leases"),
    [
        (ZookeeperLock(ZookeeperAccess("z:1")), ZookeeperLeases(ZookeeperAccess("z:1"))),
        (
            MetastoreLock(MetastoreAccess("thrift://h:1")),
            MetastoreLeases(MetastoreAccess("thrift://h:1")),
        ),
    ],
)
def test_a_lock_by_its_options_is_known_to_the_leases_of_the_same_service(lock, leases):
    given = PlainLocks(GivenLock(lock.options("/check")), leases).lease_backend
    assert given == PlainLocks(lock, leases).lease_backend != leases
    elsewhere = {
        name: value.replace("z:1", "y:1").replace("h:1", "g:1")
        for name, value in lock.options("/check").items()
    }
    assert PlainLocks(GivenLock(elsewhere), leases).lease_backend != given


def test_the_service_of_leases_is_known_by_any_of_its_servers():
    leases = ZookeeperLeases(ZookeeperAccess("z1:2181,z2:2181/a"))
    for hosts in ("z2:2181,z1:2181/a", "Z2/a/", "z3:1, z1:2181/a"):
        lock = ZookeeperLock(ZookeeperAccess(hosts), "/locks")
        assert PlainLocks(GivenLock(lock.options("/check")), leases).lease_backend.locks_root == "/locks"
    for hosts in ("z1:2181,z2:2181", "z1:2182/a", "z3/a"):
        lock = ZookeeperLock(ZookeeperAccess(hosts), "/locks")
        assert PlainLocks(GivenLock(lock.options("/check")), leases).lease_backend.locks_root == ""
    leases = MetastoreLeases(MetastoreAccess("thrift://h1:9083,thrift://h2:9083"))
    for uris, heartbeat_ms in (("thrift://h2", 7), ("h1:9083", 7), ("thrift://h2:1", 0)):
        lock = MetastoreLock(MetastoreAccess(uris), heartbeat_ms=7)
        assert PlainLocks(lock, leases).lease_backend.heartbeat_ms == heartbeat_ms
