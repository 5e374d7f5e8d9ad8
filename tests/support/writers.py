"""Runs protected Spark writes without Airflow."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

from airflow_occ_provider.attempts.commit import table_before
from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.guards.early_stop import (
    Announcements,
    EarlierWriter,
    EarlyStop,
    EarlyStopGuard,
)
from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.guards.table_guards import TableGuard, TableGuards, TableViews
from airflow_occ_provider.attempts.identity import (
    Signature,
    UnwrittenSignature,
    new_identity,
)
from airflow_occ_provider.attempts.jobs import Job, spark_job
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.settle import Settlement, settle
from airflow_occ_provider.attempts.site import Site, Source, read_site
from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    effective_options,
    refuse_unproven,
)
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.hudi.writer import early_detection
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import writer_options, zookeeper_lock_options
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.local_place import LocalPlace
from airflow_occ_provider.submitters.processes import DriverProcess, end_processes
from tests.support.local_drivers import local_driver, local_drivers

JOB = Path(__file__).parents[1] / "jobs" / "gated_write.py"
LOCK_BASE_PATH = "/hudi/locks"
NO_METADATA_TABLE = {"hoodie.metadata.enable": "false"}  # a quarter of what a driver costs
QUIET = """
rootLogger.level = error
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %m%n
"""
"""A configuration of log4j by which a driver logs its errors alone."""
_PATIENCE_S = 600
_UNSEEN = Site(Source("spark-defaults.conf", ()))


def lock_options(hosts: str) -> dict[str, str]:
    """Return the options of Hudi's lock in a ZooKeeper."""
    return zookeeper_lock_options(
        hosts,
        LOCK_BASE_PATH,
        session_timeout_ms=10_000,
        connection_timeout_ms=3_000,
        wait_time_ms=60_000,
        num_retries=3,
    )


def stack_lock_options(stack: EmbeddedStack, table: str) -> dict[str, str]:
    """Return the options of Hudi's lock in a stack's lock service."""
    if stack.lock == "zookeeper":
        return lock_options(stack.zookeeper.hosts)
    return stack_lock(stack).options(table)


def stack_lock(stack: EmbeddedStack) -> HudiLockHook:
    """Return the hook of the connection to a stack's lock service."""
    os.environ["AIRFLOW_CONN_HUDI_LOCK_OF_STACK"] = json.dumps(stack.lock_connection)
    return lock_hook("hudi_lock_of_stack")


class WriterThread:
    """One protected attempt, run in a thread; ``settlement`` is set when it has ended."""

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.settlement: Settlement | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded_run, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def run(self) -> Settlement:
        return self.start().wait()

    def wait(self) -> Settlement:
        self._thread.join(_PATIENCE_S)
        if self._error:
            raise self._error
        if self.settlement is None:
            self.kill()
            raise TimeoutError("\n".join(self.lines[-40:]))
        return self.settlement

    def kill(self) -> None:
        """End a driver that takes too long."""

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def _guarded_run(self) -> None:
        try:
            self.settlement = self._run()
        except BaseException as error:  # noqa: BLE001 - handed to the waiting test
            self._error = error

    def _run(self) -> Settlement:
        """Run the driver to its end, and settle it."""
        raise NotImplementedError


class _BeatingTable(HudiTable):
    """A table as an attempt leaves it whose task died with its driver: all heartbeats stay."""

    def retire_heartbeat(self, instant_time: str) -> bool:
        """Keep it."""
        return False


@dataclass
class Writer(WriterThread):
    """An attempt by ``spark-submit`` on this machine."""

    stack: EmbeddedStack
    table: Path | str
    arguments: Sequence[str] = ()
    early: bool = False
    hudi_options: Mapping[str, object] = field(default_factory=lambda: NO_METADATA_TABLE)
    environment: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, object] = field(default_factory=dict)
    hosts: str | None = None
    identity: str = field(default_factory=new_identity)
    retire: bool = True
    application: Path | str = JOB
    watched: bool = False
    early_stop: EarlyStop = EarlyStop.OFF
    lease: Announcements | None = None
    file_system: Any = None
    timeout_s: float = 60.0
    sees_site: bool = True
    job: Job | None = None
    lock: Mapping[str, str] | None = None
    scheme: str = ""
    commits: Commits = Commits.ONE
    is_remote: ClassVar[bool] = False
    deploy_mode: ClassVar[str] = "client"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.logger = logging.getLogger(f"writer.{self.identity}")
        self.exit_code: Any = None
        self.process: Any = None
        self.handle: Handle | None = None
        self.stop: Stop | None = None
        self.guard: EarlyStopGuard | None = None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill the JVM, then its remaining children, which hold the log open."""
        os.kill(self.process.pid, number)
        end_processes(self.identity, self.process.session)

    def _show(self, entry: Entry) -> None:
        """Add a fact that came apart to the log, as a driver elsewhere prints it."""
        if not isinstance(entry, str):
            self.lines.append(f"airflow_occ_provider: {json.dumps(entry)}\n")

    def _prepared(self, job: SparkJob, options: Mapping[str, str]) -> AbstractContextManager[Submission]:
        """Make the driver's input for the time of a block."""
        return local_drivers().prepared(job, options)

    def _submitter(self, submission: Submission, environment: Mapping[str, str]) -> Submitter:
        """Return what runs the driver."""
        command = ["spark-submit", "--master", "local[2]", "--driver-memory", "1g"]
        for key, value in self.conf.items():
            command += ["--conf", f"{key}={value}"]
        command += [submission.application, *submission.arguments]
        return local_driver(command, environment, submission)

    def _run(self) -> Settlement:
        kind_of_table = HudiTable if self.retire else _BeatingTable
        table = kind_of_table(str(self.table), self.file_system, timeout_s=self.timeout_s)
        log = DriverLog()
        environment = {**self.stack.environment, **self.environment}
        arguments, scheme = (str(self.table), *self.arguments), self.scheme or table.scheme
        given = SparkJob(str(self.application), arguments, self.conf, scheme=scheme)
        job = spark_job(self.job, table, self.conf, self.deploy_mode) if self.job else given
        site = read_site("spark-submit", environment) if self.sees_site else _UNSEEN
        refuse_unproven(job, site, is_remote=self.is_remote)
        before = table_before(table.snapshot(missing_ok=True))
        kind = Signature if self.job is None or self.job.signs else UnwrittenSignature
        signature = kind(self.identity, "dag", "run", "task")
        own = lock_options(self.hosts) if self.hosts else stack_lock_options(self.stack, str(self.table))
        lock = self.lock or own
        early = early_detection.choose(
            EarlyDetection.ON if self.early else EarlyDetection.OFF, table.scheme, ("0",)
        )
        writer = {**writer_options(lock, early.options), **signature.options()}
        options = effective_options(writer, self.hudi_options, job, site)
        rule = HeartbeatRule.of(options)
        alarm = HeartbeatAlarm(log, rule, logger=self.logger)
        earlier = EarlierWriter(self.lease, rule, None) if self.lease else None
        self.guard = EarlyStopGuard(log, self.early_stop, None, self.logger, earlier)
        watching: list[TableGuard] = [*([alarm] if self.watched else []), self.guard]
        guards = TableGuards(TableViews(table), log, watching, self.logger)
        with (
            self._prepared(job, options) as submission,
            guards,
        ):
            submitter = self._submitter(submission, {**environment, **submission.environment})

            def started(handle: Handle) -> None:
                self.handle = handle
                if submitter.name == LocalPlace.name:
                    self.process = DriverProcess.of_facts(handle.facts)

            driver = Driver(submitter, self.lines.append)
            driver.run([log.take, self._show], started, [guards])
            self.exit_code, self.stop = driver.exit_code, driver.stop
        return settle(
            table,
            signature,
            log,
            self.exit_code,
            before=before,
            stop=self.stop,
            commits=self.commits,
        )


def wait_for(what: str, happened: Callable[[], object], *writers: Writer) -> None:
    """Wait until something has happened; a writer that ends before is an error."""
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        for writer in writers:
            assert writer.settlement is None, f"{what} never happened:\n{writer.log[-6000:]}"
            assert writer._error is None, writer._error
        assert time.monotonic() < deadline, f"{what} did not happen in {_PATIENCE_S} s"
        time.sleep(0.02)


class HudiCommitLock(Lock):  # type: ignore[misc]
    """Hudi's own commit lock, held in place of another writer that is just committing."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]  # noqa: RUF012 - kazoo adds it to a list


@contextmanager
def commit_lock_held(hosts: str, table_name: str = "t") -> Iterator[None]:
    """Hold Hudi's commit lock of a table, so that writers stop just before they commit."""
    client = KazooClient(hosts=hosts)
    client.start(timeout=10)
    try:
        lock = HudiCommitLock(client, f"{LOCK_BASE_PATH}/{table_name}")
        assert lock.acquire(timeout=30)
        yield
        lock.release()
    finally:
        client.stop()
        client.close()


def inflight(table: Path | HudiTable) -> list[str]:
    """Requested times of the instants that are inflight and not yet completed."""
    timeline = _opened(table).snapshot(missing_ok=True).timeline
    return sorted(
        instant.time for instant in timeline.instants if instant.inflight_file and not instant.completed
    )


def has_markers(table: Path | HudiTable, instant: str) -> bool:
    return bool(_opened(table).snapshot().markers(instant))


def _opened(table: Path | HudiTable) -> HudiTable:
    return table if isinstance(table, HudiTable) else HudiTable(str(table))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder over HTTP, and yield the address."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
