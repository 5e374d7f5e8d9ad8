"""Runs protected Spark writes without Airflow: the other submitter that the seam allows."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.writer import early_detection
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import writer_options, zookeeper_lock_options
from airflow_occ_provider.jobs.attempt import SparkJob, effective_options, prepared, refuse_unproven
from airflow_occ_provider.jobs.driver_log import DriverLog
from airflow_occ_provider.jobs.identity import Signature, new_identity
from airflow_occ_provider.jobs.settle import Settlement, settle
from airflow_occ_provider.jobs.site import read_site
from airflow_occ_provider.operators.driver import end_session
from airflow_occ_provider.operators.heartbeat_alarm import HeartbeatAlarm
from airflow_occ_provider.storage.table import HudiTable

JOB = Path(__file__).parent / "jobs" / "gated_write.py"
LOCK_BASE_PATH = "/hudi/locks"
NO_METADATA_TABLE = {"hoodie.metadata.enable": "false"}  # a quarter of what a driver costs
_PATIENCE_S = 600


@dataclass
class Writer:
    """One protected attempt, run in a thread; ``settlement`` is there when it has ended."""

    stack: EmbeddedStack
    table: Path
    arguments: Sequence[str] = ()
    early: bool = False
    hudi_options: Mapping[str, object] = field(default_factory=lambda: NO_METADATA_TABLE)
    environment: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, object] = field(default_factory=dict)
    hosts: str | None = None
    identity: str = field(default_factory=new_identity)
    retire: bool = True
    application: Path = JOB
    watched: bool = False
    file_system: Any = None
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.logger = logging.getLogger(f"writer.{self.identity}")
        self.ended_s: float | None = None
        self.settlement: Settlement | None = None
        self.exit_code: int | None = None
        self.process: subprocess.Popen[str] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded_run, daemon=True)

    def start(self) -> Writer:
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

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill the JVM, then what outlives it: that holds the log open."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        end_session(self.process)

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def _guarded_run(self) -> None:
        try:
            self.settlement = self._run()
        except BaseException as error:  # noqa: BLE001 - handed to the waiting test
            self._error = error

    def _run(self) -> Settlement:
        table = HudiTable(str(self.table), self.file_system, timeout_s=self.timeout_s)
        log = DriverLog()
        environment = {**self.stack.environment, **self.environment}
        job = SparkJob(str(self.application), (str(self.table), *self.arguments), self.conf)
        site = read_site("spark-submit", environment)
        refuse_unproven(job, site)
        since = table.snapshot(missing_ok=True).timeline.latest_completed_write or ""
        signature = Signature(self.identity, "dag", "run", "task", latest_instant=since)
        lock = zookeeper_lock_options(
            self.hosts or self.stack.zookeeper.hosts,
            LOCK_BASE_PATH,
            session_timeout_ms=10_000,
            connection_timeout_ms=3_000,
            wait_time_ms=60_000,
            num_retries=3,
        )
        early = early_detection.choose(
            EarlyDetection.ON if self.early else EarlyDetection.OFF, "file", None
        )
        writer = {**writer_options(lock, early.options), **signature.options()}
        options = effective_options(writer, self.hudi_options, job, site)
        alarm = HeartbeatAlarm(table, log, HeartbeatRule.of(options), self._end, logger=self.logger)
        with prepared(job, options, site) as submission, alarm if self.watched else nullcontext():
            command = ["spark-submit", "--master", "local[2]", "--driver-memory", "1g"]
            for key, value in self.conf.items():
                command += ["--conf", f"{key}={value}"]
            command += ["--driver-class-path", submission.driver_class_path, submission.application]
            self.process = subprocess.Popen(
                [*command, *submission.arguments],
                env={**environment, **submission.environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            assert self.process.stdout is not None
            for line in self.process.stdout:
                self.lines.append(line)
                log.feed(line)
            self.process.stdout.close()
            self.exit_code = self.process.wait()
        return settle(table, signature, log, self.exit_code, stop=alarm.stop, retire=self.retire)

    def _end(self) -> None:
        if self.process and self.ended_s is None:
            self.ended_s = time.monotonic()
            end_session(self.process)


def wait_for(what: str, happened: Callable[[], object], *writers: Writer) -> None:
    """Wait until something has happened; a writer that ends before is an error."""
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        for writer in writers:
            assert writer.settlement is None, f"{what} never happened:\n{writer.log[-6000:]}"
            assert writer._error is None, writer._error
        assert time.monotonic() < deadline, f"{what} did not happen in {_PATIENCE_S} s"
        time.sleep(0.02)


class HudiCommitLock(Lock):
    """Hudi's own commit lock, as a stand-in for a neighbour that is just committing."""

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


def inflight(table: Path) -> list[str]:
    """Requested times of the instants that are inflight and not yet completed."""
    folder = table / ".hoodie" / "timeline"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    completed = {name[:17] for name in names if "_" in name}
    return sorted(n[:17] for n in names if n.endswith(".inflight") and n[:17] not in completed)


def has_markers(table: Path, instant: str) -> bool:
    return any((table / ".hoodie" / ".temp" / instant).rglob("*.marker.*"))
