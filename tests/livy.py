"""What tests of Livy share: a hook over plain HTTP, and writers that run as batches."""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_occ_provider.attempts.attempt import Attempt
from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.identity import Signature, new_identity
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.record import TryKey
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.staging import staged
from airflow_occ_provider.attempts.submission import SparkJob, effective_options
from airflow_occ_provider.hudi.writer.options import writer_options, zookeeper_lock_options
from airflow_occ_provider.storage.report import Report, RunFolder
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_batch import livy_batch
from tests.writers import JOB, LOCK_BASE_PATH, NO_METADATA_TABLE

_PATIENCE_S = 600
_SITE = Site(Source("spark-defaults.conf", ()))


class PlainHook:
    """The part of ``LivyHook`` that the submitter uses, without Airflow."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.extra_options: dict[str, Any] = {}
        self.extra_headers: dict[str, Any] = {"X-Requested-By": "tests"}

    def run_method(
        self, endpoint: str, method: str = "GET", data: Any = None, headers: Any = None
    ) -> Any:
        body = data.encode() if isinstance(data, str) else None
        headers = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + endpoint, body, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=self.extra_options["timeout"]) as answer:  # noqa: S310
                return SimpleNamespace(status_code=answer.status, text=answer.read().decode())
        except urllib.error.HTTPError as error:
            return SimpleNamespace(status_code=error.code, text=error.read().decode())


class Store:
    record = None

    def get(self) -> Any:
        return self.record

    def set(self, record: Any) -> None:
        self.record = record


@dataclass
class LivyWriter:
    """One protected attempt as a batch, run in a thread."""

    hook: Any
    hosts: str
    table: Path
    arguments: Sequence[str] = ()
    conf: Mapping[str, object] = field(default_factory=dict)
    folder: RunFolder | None = None
    identity: str = field(default_factory=new_identity)
    store: Store = field(default_factory=Store)

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.settlement: Settlement | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded_run, daemon=True)
        self.folder = self.folder or RunFolder.of(str(self.table), self.identity)
        files = self.folder.file_system
        self.submitter = Livy(
            self.hook,
            open_report=lambda url: Report(url, file_system=files),
            is_on_server=True,
            poll_s=0.3,
            patience_s=60,
        )
        signature = Signature(self.identity, "dag", "run", "task")
        journal = Journal(self.store, TryKey(1, 5))
        journal.begin(self.identity, "")
        self.attempt = Attempt(
            journal,
            HudiTable(str(self.table)),
            signature,
            Driver(self.submitter, self.lines.append),
            log=logging.getLogger(__name__),
        )
        lock = zookeeper_lock_options(
            self.hosts,
            LOCK_BASE_PATH,
            session_timeout_ms=10_000,
            connection_timeout_ms=3_000,
            wait_time_ms=60_000,
            num_retries=3,
        )
        self._job = SparkJob(str(JOB), (str(self.table), *self.arguments))
        writer = {**writer_options(lock, {}), **signature.options()}
        self._options = effective_options(writer, NO_METADATA_TABLE, self._job, _SITE)

    def start(self) -> LivyWriter:
        self._thread.start()
        return self

    def run(self) -> Settlement:
        return self.start().wait()

    def wait(self) -> Settlement:
        self._thread.join(_PATIENCE_S)
        if self._error:
            raise self._error
        assert self.settlement, self.log
        return self.settlement

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def _guarded_run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - handed to the waiting test
            self._error = error

    def _run(self) -> None:
        assert self.folder
        with staged(self._job, self._options, self.folder, "1") as job:
            self.submitter.report = job.report
            self.submitter.batch = livy_batch(
                job.application, job.arguments, self.conf, driver_memory="1g"
            )
            self.attempt.watch()
            self.settlement = self.attempt.settle(is_judged=True)
