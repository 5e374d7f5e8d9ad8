"""What tests of Livy share: a hook over plain HTTP, and writers that run as batches."""

from __future__ import annotations

import logging
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
from airflow_occ_provider.attempts.record_parts import NOTHING_BEFORE, TryKey
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.staging import staged
from airflow_occ_provider.attempts.submission import SparkJob, Submission, effective_options
from airflow_occ_provider.embedded.livy import EmbeddedLivy
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.embedded.yarn import EmbeddedYarn
from airflow_occ_provider.hudi.writer.options import writer_options
from airflow_occ_provider.storage.report import Report, RunFolder
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_batch import livy_batch
from airflow_occ_provider.submitters.livy_yarn import LivyOnYarn
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.resource_manager import MANAGERS_FIELD, ResourceManager
from tests.writers import JOB, NO_METADATA_TABLE, WriterThread, lock_options

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
class LivyWriter(WriterThread):
    """An attempt as a batch of Livy.

    :param name: of the attempt among those of its folder.
    """

    hook: Any
    hosts: str
    table: Path | str
    arguments: Sequence[str] = ()
    conf: Mapping[str, object] = field(default_factory=dict)
    folder: RunFolder | None = None
    identity: str = field(default_factory=new_identity)
    store: Store = field(default_factory=Store)
    name: str = "1"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.folder = self.folder or RunFolder.of(str(self.table), self.identity)
        files = self.folder.file_system
        self.submitter = self._submitter(files)
        signature = Signature(self.identity, "dag", "run", "task")
        journal = Journal(self.store, TryKey(1, 5))
        journal.begin(self.identity, NOTHING_BEFORE)
        self.attempt = Attempt(
            journal,
            HudiTable(str(self.table), files),
            signature,
            Driver(self.submitter, self.lines.append),
            log=logging.getLogger(__name__),
        )
        self._job = SparkJob(str(JOB), (str(self.table), *self.arguments))
        writer = {**writer_options(lock_options(self.hosts), {}), **signature.options()}
        self._options = effective_options(writer, NO_METADATA_TABLE, self._job, _SITE)

    def _run(self) -> Settlement:
        assert self.folder
        with staged(self._job, self._options, self.folder, self.name) as job:
            self._give(job)
            self.attempt.watch()
            return self.attempt.settle(is_judged=True)

    def _submitter(self, files: Any) -> Any:
        return Livy(
            self.hook,
            open_report=lambda url: Report(url, file_system=files),
            is_on_server=True,
            poll_s=0.3,
            patience=Patience(60, "Livy"),
        )

    def _give(self, job: Submission) -> None:
        self.submitter.report = job.report
        self.submitter.batch = livy_batch(job.application, job.arguments, self.conf, driver_memory="1g")


class LivyServerOnYarn(EmbeddedLivy):
    """A Livy server that submits its batches to an embedded YARN, in cluster mode."""

    def __init__(self, folder: Path, yarn: EmbeddedYarn) -> None:
        super().__init__(folder, "yarn", settings={"livy.spark.deploy-mode": "cluster"})
        self.yarn = yarn

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection to it, as fields."""
        return {**super().connection, "extra": {MANAGERS_FIELD: self.yarn.resource_manager}}

    def _command(self) -> list[str]:
        command = super()._command()
        command[command.index("-cp") + 1] += f":{self.yarn.folder / 'conf'}"
        return command

    def _variables(self) -> Mapping[str, str]:
        return {
            **super()._variables(),
            **self.yarn.environment(spark_environment(self.folder / "spark")),
        }


@dataclass
class YarnWriter(LivyWriter):
    """An attempt as a batch of a Livy in front of YARN."""

    yarn: EmbeddedYarn | None = None

    def _submitter(self, files: Any) -> LivyOnYarn:
        assert self.yarn
        return livy_on_yarn(self.hook, self.yarn, open_report=lambda url: Report(url, file_system=files))

    def _give(self, job: Submission) -> None:
        self.submitter.livy.report = job.report
        self.submitter.livy.batch = livy_batch(job.application, job.arguments, self.conf)


def livy_on_yarn(hook: Any, yarn: EmbeddedYarn, **given: Any) -> LivyOnYarn:
    """Return a submitter to an embedded YARN through Livy."""
    cluster = YarnCluster(
        ResourceManager([yarn.resource_manager]),
        open_log=lambda path: (yarn.aggregated_logs / path).open("rb"),
        end_s=60.0,
    )
    return LivyOnYarn(Livy(hook, poll_s=0.3, patience=Patience(60, "Livy"), **given), cluster)
