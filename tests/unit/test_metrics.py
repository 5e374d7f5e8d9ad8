"""What goes out through Airflow's own StatsD client, received from a real socket."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

from airflow_occ_provider.attempts import journal, try_lease
from airflow_occ_provider.attempts.attempt import AttemptRecorder
from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.outcome import MEANINGS, Outcome
from airflow_occ_provider.attempts.service_attempt import ServiceAttempt, ServiceLimits, plans_of
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.attempts.write import Write
from airflow_occ_provider.hudi.writer.fate import Fate, Writer
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators import lease, task_run
from airflow_occ_provider.operators import lease as lease_module
from airflow_occ_provider.operators.hudi_table_service import HudiClusteringOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator
from airflow_occ_provider.task import metrics
from airflow_occ_provider.task.metrics import Work
from airflow_occ_provider.triggers.shared_watch import WriterTarget, shared_watch
from tests.contract.in_memory_submitter import failing
from tests.support.memory_store import MemoryStore
from tests.support.metric_contexts import Store, context
from tests.unit.beating import BeatingTable
from tests.unit.reports import fact, reported

LOGS = Path(__file__).parents[1] / "golden" / "logs"
WORK = Work("d", "group.t", "s3a://lake/trips/")
OF_WORK = "dag_id=d,task_id=group.t,table=s3/lake/trips"
RULE = HeartbeatRule(60_000, 2)
END = "end"


class Receiver:
    """A StatsD server that keeps what it is sent."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(10)
        self.port = self.socket.getsockname()[1]

    def take(self):
        """All that was sent since the last time."""
        stats.incr(END)
        told = []
        while (line := self.socket.recv(4096).decode()) != f"airflow.{END}:1|c":
            told += line.splitlines()
        return told


@contextmanager
def sender(factory):
    logger = factory()
    yield logger
    if isinstance(logger, SafeStatsdLogger):
        logger.statsd.close()


@pytest.fixture
def start(monkeypatch):
    """Start Airflow's metrics as a task's process does, with settings of our own."""
    receiver = Receiver()

    def start(**settings):
        given = {"statsd_on": "True", "statsd_port": str(receiver.port), **settings}
        for key, value in given.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{key.upper()}", value)
        factory = stats_utils.get_stats_factory()
        stats.initialize(factory=lambda: opened.enter_context(sender(factory)), export_legacy_names=True)
        return receiver

    with ExitStack() as opened:
        opened.callback(receiver.socket.close)
        yield start
        stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


@pytest.fixture
def received(start):
    return start()


@pytest.fixture
def tagged(start):
    return start(statsd_influxdb_enabled="True")


def everything(work=WORK):
    for outcome in Outcome:
        metrics.attempt(work, outcome, 1.5)
    metrics.queue_wait(work, 2)
    metrics.lease_age(work, 3)
    metrics.own_heartbeat_margin(work, 44.5)
    metrics.writers(work.table, (), RULE)


def test_every_name(received):
    everything()
    sent = received.take()
    assert sorted(set(sent)) == [
        "airflow.hudi.attempts:1|c",
        "airflow.hudi.conflicts:1|c",
        "airflow.hudi.ghosts:0|g",
        "airflow.hudi.heartbeat_margin:120.0|g",
        "airflow.hudi.lease_age:3000.000000|ms",
        "airflow.hudi.own_heartbeat_margin:44.5|g",
        "airflow.hudi.queue_wait:2000.000000|ms",
        "airflow.hudi.wasted:1500.000000|ms",
    ]
    assert sent.count("airflow.hudi.attempts:1|c") == len(Outcome)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_attempt_is_counted_once_and_is_lost_only_to_others(tagged, outcome):
    metrics.attempt(WORK, outcome, 1.5)
    tags = f"{OF_WORK},outcome={outcome}"
    expected = [f"airflow.hudi.attempts,{tags}:1|c"]
    if "conflict" in outcome:
        expected.append(f"airflow.hudi.conflicts,{tags}:1|c")
    lost = ("yielded", "lock_timeout", "heartbeat_expired", "commit_refused", "rolled_back")
    if "conflict" in outcome or outcome in lost:
        expected.append(f"airflow.hudi.wasted,{tags}:1500.000000|ms")
    assert tagged.take() == expected


def test_the_tags_of_a_task_and_of_a_table(tagged):
    metrics.queue_wait(WORK, 2)
    metrics.lease_age(WORK, 3)
    metrics.own_heartbeat_margin(WORK, -1)
    metrics.writers("/lake/trips", (), RULE)
    assert tagged.take() == [
        f"airflow.hudi.queue_wait,{OF_WORK}:2000.000000|ms",
        f"airflow.hudi.lease_age,{OF_WORK}:3000.000000|ms",
        f"airflow.hudi.own_heartbeat_margin,{OF_WORK}:0|g",  # StatsD takes a bare -1 for a decrease
        f"airflow.hudi.own_heartbeat_margin,{OF_WORK}:-1|g",
        "airflow.hudi.heartbeat_margin,table=/lake/trips:120.0|g",
        "airflow.hudi.ghosts,table=/lake/trips:0|g",
    ]


def test_the_margin_of_a_table_is_that_of_the_next_to_die(received):
    pending = [
        Writer("1", "commit", Fate.ALIVE, 0, 90_000),
        Writer("2", "commit", Fate.LATE, 0, 12_500),
        Writer("3", "commit", Fate.DEAD, 0, -70_000),
        Writer("4", "commit", Fate.DEAD),
    ]
    metrics.writers("/t", pending, RULE)
    assert received.take() == ["airflow.hudi.heartbeat_margin:12.5|g", "airflow.hudi.ghosts:2|g"]
    metrics.writers("/t", pending[2:], RULE)
    assert received.take() == ["airflow.hudi.heartbeat_margin:120.0|g", "airflow.hudi.ghosts:2|g"]


def test_each_look_at_a_watched_table_is_told_once(received, tmp_path):
    table = BeatingTable(tmp_path / "t")
    table.begin(1, at_ms=1_700_000_000_000)

    async def watched():
        async with (
            asyncio.timeout(20),
            shared_watch(WriterTarget(str(table.path), None, 600, RULE)) as watch,
        ):
            await watch.listings.after(None)

    asyncio.run(watched())
    assert received.take() == ["airflow.hudi.heartbeat_margin:120.0|g", "airflow.hudi.ghosts:1|g"]


def table_tag(receiver, table):
    metrics.writers(table, (), RULE)
    return receiver.take()[-1].removeprefix("airflow.hudi.ghosts,table=").removesuffix(":0|g")


@pytest.mark.parametrize(
    ("table", "tag"),
    [
        ("s3a://lake/trips/", "s3/lake/trips"),
        ("s3://key:se@cret@lake/trips", "s3/lake/trips"),
        ("s3://key@lake/trips", "s3/lake/trips"),
        ("abfss://raw@me.dfs.core.windows.net/trips", "abfs/raw_me.dfs.core.windows.net/trips"),
        ("abfss://raw:secret@me.dfs.core.windows.net/trips", "abfs/raw_me.dfs.core.windows.net/trips"),
        ("hdfs://namenode:8020/trips", "hdfs/namenode/trips"),  # the default port
        ("hdfs://namenode:9000/trips", "hdfs/namenode_9000/trips"),
        ("file:///lake/trips", "/lake/trips"),
        ("/lake/a@b/trips, v=2", "/lake/a_b/trips__v_2"),
        ("/lake/größe", "/lake/gr__e"),
    ],
)
def test_a_table_is_its_path_and_no_secret(tagged, table, tag):
    assert table_tag(tagged, table) == tag


def test_nothing_is_dropped_for_its_length_and_long_tags_stay_apart(tagged, caplog):
    sent = set()
    for first in "ab":
        everything(Work(first + "d" * 249, first + "t" * 249, f"s3://{first}{'/deep' * 100}"))
        sent |= set(tagged.take())
    lost = sum(meaning.is_conflict + meaning.is_wasted for meaning in MEANINGS.values())
    metrics_of_tasks = len(Outcome) + lost + 3
    assert len(sent) == 2 * (metrics_of_tasks + 2)
    assert all(line.rpartition(":")[0].endswith(("/deep", *Outcome)) for line in sent)
    assert caplog.text == ""


def test_a_metric_never_fails_a_task_and_that_is_told_once(received, caplog):
    def broken():
        raise ValueError("no such host")

    metrics._warn_once.cache_clear()
    stats.initialize(factory=broken, export_legacy_names=True)
    everything()
    assert [record.getMessage() for record in caplog.records] == [
        "Metrics are not sent: ValueError: no such host"
    ]
    metrics.writers("trips", (), RULE)
    assert "'trips' is not a path" in caplog.text


def test_nothing_is_sent_where_metrics_are_off(start):
    receiver = start(statsd_on="False")
    everything()
    start(statsd_on="True")
    assert receiver.take() == []


@pytest.fixture
def line(monkeypatch):
    """A line in memory in the place of the connection's."""
    nodes = MemoryStore()
    hook = SimpleNamespace(
        lock_conn_id="lock", terms=lambda: Terms(60_000, 60_000), leases=lambda: Queue(nodes)
    )
    for module in (task_run, lease, lease_module):
        monkeypatch.setattr(module, "lock_hook", lambda conn_id: hook)
    return Queue(nodes)


@pytest.fixture
def later(monkeypatch):
    """Have our clocks go on by some seconds."""

    def later(seconds):
        moved = SimpleNamespace(
            time=lambda: time.time() + seconds, monotonic=lambda: time.monotonic() + seconds
        )
        for module in (journal, try_lease):
            monkeypatch.setattr(module, "time", moved)

    return later


def values(sent, name):
    """What was sent of a timing, in whole seconds by its tags."""
    found = (one.rpartition(":") for one in sent if one.startswith(f"airflow.hudi.{name},"))
    return {head.partition(",")[2]: round(float(value[:-3]) / 1000) for head, _, value in found}


@pytest.fixture
def writer(table):
    with DAG("d", schedule=None):
        return HudiWriteOperator(task_id="t", application="a.py", table=table.path)


def rival(line, table):
    asked = Request("i", Owner(("d", "r0", "t")), (Scope.of(table, None),), 60_000)
    return line.request(asked)


def test_a_writer_tells_its_wait_across_processes_and_how_long_it_held(writer, line, later, tagged):
    theirs, mine = rival(line, writer.table), context("t", Store())
    with pytest.raises(WaitNeeded), writer._protected_run(mine).admitted({}):
        raise AssertionError("not reached")
    assert tagged.take() == []
    line.release(theirs)
    later(7)
    tags = f"dag_id=d,task_id=t,table={metrics._valid(writer.table)}"
    with writer._protected_run(mine).admitted({}):
        sent = tagged.take()
        assert (values(sent, "queue_wait"), len(sent)) == ({tags: 7}, 1)
        later(7 + 5)
    sent = tagged.take()
    assert (values(sent, "lease_age"), len(sent)) == ({tags: 5}, 1)


def test_a_lease_that_was_lost_has_no_age(writer, line, tagged):
    mine = context("t", Store())
    with writer._protected_run(mine).admitted({}):
        rival(line, "/other")
        for one in line.requests(writer.table):
            line.release(line.request(one.request))
        tagged.take()
    assert tagged.take() == []


def test_a_runs_lease_tells_its_wait_and_its_age_for_each_table(line, later, tagged):
    theirs = rival(line, "s3://lake/b")
    with DAG("d", schedule=None):
        take = HudiLeaseOperator(task_id="lease", tables=["s3a://lake/b", "/a"])
        release = take.release()
    mine = context("lease", Store())
    with pytest.raises(TaskDeferred):
        take.execute(mine)
    line.release(theirs)
    later(7)
    release.ticket = json.loads(json.dumps(take.execute_after_admission(mine, {"status": "granted"})))
    sent = values(tagged.take(), "queue_wait")
    assert sent == {f"dag_id=d,task_id=lease,table={table}": 7 for table in ("/a", "s3/lake/b")}
    later(7 + 5)
    release.execute(context("lease_release", Store()))
    sent = values(tagged.take(), "lease_age")
    assert sent == {f"dag_id=d,task_id=lease_release,table={one}": 5 for one in ("/a", "s3/lake/b")}
    release.ticket = take.execute(context("lease", Store()))
    tagged.take()
    for unknown in ("tables", "held_ms"):
        del release.ticket[unknown]
    release.execute(context("lease_release", Store()))
    assert tagged.take() == []


def test_a_writer_tells_what_its_attempt_came_to(writer, line, later, tagged):
    mine = context("t", Store())
    run = writer._protected_run(mine)
    lines = reported((LOGS / "early_conflict.exit1.log").read_text().splitlines())
    signature = Signature("i", "d", "r", "t")
    attempt = Write(run).write_attempt().attempt(Driver(failing(lines)), signature, {})
    attempt.watch()
    later(90)
    assert attempt.settle().outcome is Outcome.EARLY_CONFLICT
    tags = f"dag_id=d,task_id=t,table={metrics._valid(writer.table)},outcome=early_conflict"
    sent = tagged.take()
    assert sent[:2] == [f"airflow.hudi.{name},{tags}:1|c" for name in ("attempts", "conflicts")]
    assert (values(sent, "wasted"), len(sent)) == ({tags: 90}, 3)


def test_a_table_service_tells_what_its_attempt_came_to(table, tagged):
    service = HudiClusteringOperator(task_id="t", table=table.path)
    for exit_code, outcome in ((1, "early_conflict"), (0, "nothing_written")):
        run = service._protected_run(context("t", Store()))
        plans = plans_of(run, service._service_task(), DEFAULT_RULE)
        limits = ServiceLimits(run.claim.service, None, logging.getLogger("test"))
        attempt = ServiceAttempt(plans, limits, run.spark, run.task_run.measures.attempt)
        recorder = AttemptRecorder(run.journal, table.path, logging.getLogger("test"))
        failed = reported((LOGS / "early_conflict.exit1.log").read_text().splitlines())
        for line in failed if exit_code else [fact("protected")]:
            recorder.log.take(line)
        assert attempt.settle(recorder, exit_code, ("schedule",)).outcome == outcome
        assert sum(one.startswith("airflow.hudi.attempts,") for one in tagged.take()) == 1
