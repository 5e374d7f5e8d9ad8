"""Protected writes by a program of plain Python, without Airflow.

Other schedulers, such as cron, run such a program once for each run of their work::

    zookeeper = ZookeeperAccess("zk1:2181,zk2:2181")
    program = Program(
        "trips",
        locks=PlainLocks(ZookeeperLock(zookeeper), ZookeeperLeases(zookeeper)),
        spark=SparkSubmit("local[4]"),
        journals="/srv/journals",
    )
    program.write(WriteSpec("/lake/trips", PythonFile("upsert_trips.py")), run_id="2026-11-21")

Each run has a journal, by which a program that was killed is continued when it is started again. The
driver is a process of this host, and ends with the program. A program that is asked to stop, by SIGTERM
or Ctrl-C, ends its driver, settles the attempt and releases its lease.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.identity import Signature, UnwrittenSignature
from airflow_occ_provider.attempts.jobs import MainClass, PythonFile, Sql
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.locks import (
    DynamoLock,
    GivenLock,
    LockConnection,
    MetastoreLock,
    PlainLocks,
    StorageLock,
    ZookeeperLock,
)
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.record import TryKey
from airflow_occ_provider.attempts.site import Site, StartLimit, read_site
from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    refuse_unproven,
    without_secrets,
)
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.task_run import Measures
from airflow_occ_provider.attempts.waits import (
    AdmissionWait,
    DriverEvent,
    DriverWait,
    TaskWait,
    WaitNeeded,
)
from airflow_occ_provider.attempts.write import ProtectedTry, Write
from airflow_occ_provider.attempts.write_spec import WritePolicy, WriteSpec
from airflow_occ_provider.errors import (
    ConfigurationError,
    LeaseLostError,
    LockUnreachableError,
    OccError,
    StateStoreError,
    WriteConflictError,
)
from airflow_occ_provider.leases.dynamodb.access import DynamoAccess
from airflow_occ_provider.leases.dynamodb.backend import DynamoLeases
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.backend import MetastoreLeases
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.leases.storage.backend import StorageLeases
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.backend import ZookeeperLeases
from airflow_occ_provider.retry import ConflictRetry
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.local_place import LocalPlace
from airflow_occ_provider.submitters.processes import LONGEST_END_S, Flag
from airflow_occ_provider.submitters.task_drivers import TaskDrivers, folder_driver

__all__ = [
    "DynamoAccess",
    "DynamoLeases",
    "DynamoLock",
    "GivenLock",
    "MainClass",
    "MetastoreAccess",
    "MetastoreLeases",
    "MetastoreLock",
    "PlainLocks",
    "Program",
    "PythonFile",
    "SparkSubmit",
    "Sql",
    "StorageLeases",
    "StorageLock",
    "WritePolicy",
    "WriteSpec",
    "ZookeeperAccess",
    "ZookeeperLeases",
    "ZookeeperLock",
]

_log = logging.getLogger(__name__)
_TASK = "write"
"""The name of a program's only task, where Airflow has one."""
_LOOK_S = 5.0
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """How ``spark-submit`` is called on this host, in client mode.

    :param master: of Spark.
    :param binary: the command, or its path.
    :param options: further options of the command, without their dashes: ``{"jars": "hudi.jar"}``;
        settings of Spark are ``WriteSpec.conf``.
    :param environment: variables of the driver, besides those of this process.
    :param start_limit: the longest wait for the begin of the job.
    :raises ConfigurationError: for options that are not safe.
    """

    master: str = "local[*]"
    binary: str = "spark-submit"
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    start_limit: StartLimit = field(default_factory=StartLimit)

    def __post_init__(self) -> None:
        if self.options.get("deploy-mode", "client") != "client":
            raise ConfigurationError(
                "options",
                f"deploy-mode={self.options['deploy-mode']!r}: the program proves the end of its own "
                "processes alone, and a driver elsewhere could outlive it",
                remedy="leave it out",
            )
        if "conf" in self.options:
            raise ConfigurationError(
                "options",
                "it contains conf, which would show secrets in the list of processes",
                remedy="give Spark's settings as WriteSpec(conf={...})",
            )

    def command(
        self, name: str, submission: Submission, conf: Mapping[str, str], properties_file: str | None
    ) -> list[str]:
        """Return the command line of a submission.

        :param conf: Spark's settings, without secrets.
        :param properties_file: that is read instead of the site's.
        """
        options = {"master": self.master, "name": name, **self.options}
        if properties_file:
            options["properties-file"] = properties_file
        words = [word for option, value in options.items() for word in (f"--{option}", value)]
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return [self.binary, *words, *settings, submission.application, *submission.arguments]


@dataclass(frozen=True, slots=True)
class Program:
    """A program that writes a table, once for each of its runs.

    :param name: the same in each run, and of no other program.
    :param locks: Hudi's own lock, and where the leases are.
    :param spark: what runs the drivers.
    :param journals: absolute path of a folder of this host, which has a journal of each run. A run
        without its journal is a new one, and writes again.
    :param file_system: fsspec's, by which tables are read; ``None`` for the process's own credentials.
    :param retries: how often the job's own errors are retried.
    :param rules: how often other failures are, and after which waits.
    :param site: the name of this scheduler, in the queue and in commits.
    """

    name: str
    _: KW_ONLY
    locks: LockConnection
    spark: SparkSubmit
    journals: str | Path
    file_system: Any = None
    retries: int = 0
    rules: ConflictRetry = field(default_factory=ConflictRetry)
    site: str = "standalone"

    def __post_init__(self) -> None:
        if not Path(self.journals).is_absolute():
            raise ConfigurationError(
                "journals",
                f"{str(self.journals)!r} is not an absolute path: started in another folder, the "
                "program would not find what its runs have written, and write it again",
                remedy="enter a path that begins with /",
            )

    def write(self, spec: WriteSpec, run_id: str) -> dict[str, Any]:
        """Write a table once, and return the facts of the commits.

        A run that has written returns the same facts again, and writes nothing. It waits in the queue,
        and retries what other writers or the infrastructure made fail.

        :param run_id: names the run: the same if the program is started again to continue it. Other
            work is another run.
        :raises ConfigurationError: if the run has begun with another job, arguments, table or scope.
        :raises OccError: if the write failed, or whether it has committed is unknown.
        :raises StateStoreError: if another process of this host has the run.
        """
        with (
            _JournalFile.of_run(Path(self.journals), self.name, run_id) as journal,
            _stopped_by_sigterm(),
        ):
            spent: Counter[str] = Counter()
            while True:
                try:
                    return _Try(self, spec, run_id, journal).result()
                except OccError as error:
                    verdict = self.rules.judge(error, spent, self.retries, random.random())  # noqa: S311 - jitter
                    if verdict.retry is False:
                        raise
                    # A writer that lost a conflict is queued: no random wait keeps others apart from it.
                    is_queued = spec.is_queued and isinstance(error, WriteConflictError)
                    wait_s = 0.0 if is_queued or not verdict.delay else verdict.delay.total_seconds()
                    _log.warning("Retry in %.0f s: %s", wait_s, verdict.reason)
                    spent[verdict.cause or ""] += 1
                    time.sleep(wait_s)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end a block as Ctrl-C does, unless the program handles it itself."""
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_ours:
        signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the settlement
    sys.exit(128 + number)


@dataclass(frozen=True, slots=True)
class _JournalFile:
    """The journal of a run, as a file: a ``RecordStore``."""

    path: Path

    @classmethod
    @contextmanager
    def of_run(cls, folder: Path, name: str, run_id: str) -> Iterator[_JournalFile]:
        """Return the journal of a run, which no other process of this host has meanwhile.

        :raises StateStoreError: if one has it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        # A comma is quoted in both, so that no two runs have one name.
        path = folder / f"{quote(name, safe='')},{quote(run_id, safe='')}.json"
        with path.with_suffix(".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateStoreError(
                    f"another process writes the run of {path}",
                    remedy="wait for its end, or end it; then start the program again",
                ) from None
            yield cls(path)

    def get(self) -> Any:
        """Return the record; ``None`` if there is none."""
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def set(self, record: Any) -> None:
        """Replace the record, so that a process or a host that dies leaves the one before."""
        new = self.path.with_suffix(".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(record, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)  # else a host that dies forgets the name
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise self._failed(error) from error

    @property
    def next_try(self) -> int:
        """The number of the next try, from 1."""
        record = self.get()
        return record["last_try"]["number"] + 1 if record else 1

    def _failed(self, error: Exception) -> StateStoreError:
        return StateStoreError(f"{self.path}: {error}", remedy="look after the disk; start it again")


class _Try:
    """One try of a run: a ``TaskRun``."""

    measures = Measures()
    due_ms = 0

    def __init__(self, program: Program, spec: WriteSpec, run_id: str, journal: _JournalFile) -> None:
        self._program = program
        self._spec = spec
        self._run_id = run_id
        self._store = journal
        self._number = journal.next_try
        self._is_resumed = False

    def result(self) -> dict[str, Any]:
        """Settle the earlier tries, run the job once, and return the facts by the table.

        :raises OccError: if the attempt failed, or its commit is not safe.
        """
        drivers = _LocalDrivers(self._program.spark, self._spec, f"{self._program.name}.{self._run_id}")
        while True:
            attempt = ProtectedTry(self._spec, self, drivers, _log)
            self._refuse_other_work(attempt)
            try:
                return Write(attempt).result()
            except WaitNeeded as needed:
                self._wait(needed.wait)
            self._is_resumed = True

    def _refuse_other_work(self, attempt: ProtectedTry) -> None:
        """Refuse work for which a commit of the run would be taken, though it is not that work's."""
        if attempt.journal.record.digest not in ("", attempt.work_digest):
            raise ConfigurationError(
                "run_id",
                f"run {self._run_id!r} of {self._program.name!r} has begun with another job, other "
                "arguments, another table or another scope",
                remedy="give other work a run_id of its own",
            )

    def _wait(self, wait: TaskWait) -> None:
        """Wait until the try may go on, or has to look again."""
        if isinstance(wait, AdmissionWait):
            self._wait_for_lease(wait)
        elif isinstance(wait, DriverWait):
            raise AssertionError("a driver of this host is not waited for by another process")
        else:
            time.sleep(min(_LOOK_S, max(0.0, (wait.deadline_ms - now_ms()) / 1000)))

    def _wait_for_lease(self, wait: AdmissionWait) -> None:
        """Renew a queued request until it is granted, is lost, or its time is over."""
        period_s, changed = wait.ttl_ms / 1000 / RENEWALS_PER_TTL, threading.Event()
        with closing(self._program.locks.leases()) as queue:
            while now_ms() < wait.deadline_ms:
                changed.clear()
                try:
                    queue.renew(wait.ticket, wait.ttl_ms)
                    status = queue.status(wait.ticket, changed.set, until_next=wait.until_next)
                    if status.ends_wait(until_next=wait.until_next):
                        queue.renew(wait.ticket, wait.claim_ttl_ms)
                        return
                except LeaseLostError as error:
                    _log.info("The request is queued again: %s", error.message)
                    return
                except LockUnreachableError as error:
                    _log.warning("Retrying: %s", error.message)
                    time.sleep(_RETRY_S)
                changed.wait(min(period_s, max(0.0, (wait.deadline_ms - now_ms()) / 1000)))

    def lock(self) -> LockConnection:
        """Return the program's locks."""
        return self._program.locks

    def open_table(self, table: str) -> HudiTable:
        """Return the reader of a table."""
        return HudiTable(table, self._program.file_system)

    def journal(self) -> Journal:
        """Return the journal of the run."""
        labels = (self._program.site, self._program.name, self._run_id, _TASK)
        now = TryKey(self._number, max_tries=0)  # no user clears a run
        return Journal(self._store, now, labels=labels, is_resumed=self._is_resumed)

    def owner(self) -> Owner:
        """Return the owner of the run's leases."""
        return Owner((self._program.name, self._run_id, _TASK), site=self._program.site)

    def sign(
        self, identity: str, snapshot: Snapshot, order_token: str, *, is_written: bool = True
    ) -> Signature:
        """Return the signature of the try's commits."""
        kind = Signature if is_written else UnwrittenSignature
        return kind(
            identity=identity,
            dag_id=self._program.name,
            run_id=self._run_id,
            task_id=_TASK,
            try_number=self._number,
            latest_instant=snapshot.timeline.latest_completed_write or "",
            order_token=order_token,
            site=self._program.site,
        )

    def absence_ms(self, try_number: int) -> int:  # noqa: ARG002
        """Return 0: a driver ends with this process, and so may its lease."""
        return 0

    def folders(self) -> tuple[str, ...]:
        """Return none: the files of the work stay where they are."""
        return ()

    def grants(self, error: BaseException) -> bool | None:  # noqa: ARG002
        """Return ``None``: the program knows it once the try has failed."""
        return None

    def hide(self, secrets: Iterable[str]) -> None:
        """Hide nothing: the program's log has no mask."""

    def show(self, options: Mapping[str, str]) -> None:
        """Show nothing: there are no pages."""

    def publish(self, commit: Commit | None, result: Mapping[str, Any]) -> None:
        """Publish nothing: the program returns the result."""


@dataclass(frozen=True, slots=True)
class _Launch:
    """One submission, as ``LocalPlace`` and ``TaskDrivers`` need it."""

    spark: SparkSubmit
    name: str
    conf: Mapping[str, str]
    submission: Submission
    site: Mapping[str, str]
    killed: Flag

    @property
    def start_limit(self) -> StartLimit:
        """The longest wait for the begin of the job."""
        return self.spark.start_limit

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of ``spark-submit``."""
        return {**os.environ, **self.spark.environment, **self.submission.environment}

    def command(self, conf: Mapping[str, str] | None = None) -> Sequence[str]:
        """Return the command line.

        :param conf: further settings of Spark.
        """
        settings = {**self.conf, **(conf or {})}
        texts, properties_file = without_secrets(settings, self.site, self.submission.folder)
        return self.spark.command(self.name, self.submission, texts, properties_file)


class _LocalDrivers:
    """The drivers of a run, as processes of this host: a ``DriverRun``."""

    is_remote = False
    longest_end_s = LONGEST_END_S
    deploy_mode = None

    def __init__(self, spark: SparkSubmit, spec: WriteSpec, name: str) -> None:
        self._spark = spark
        self._name = name
        self._conf = {key: str(value) for key, value in spec.conf.items()}
        self._drivers: TaskDrivers[_Launch] = TaskDrivers(LocalPlace, spec.table)
        self._killed = Flag()
        self._site: Mapping[str, str] = {}
        self._driver: Driver | None = None
        # Each look of a wait asks for it, and the answer takes a process.
        self._read_site = cache(
            partial(
                read_site,
                spark.binary,
                {**os.environ, **spark.environment},
                properties_file=spark.options.get("properties-file"),
                class_path=spark.options.get("driver-class-path", "").split(os.pathsep),
            )
        )

    @property
    def lives(self) -> bool:
        """Whether a process of the driver may be alive."""
        return self._driver is not None and self._driver.lives

    def read_site(self) -> Callable[[], Site]:
        """Return what reads the configuration of this host's Spark."""
        return self._read_site

    def refuse(self, job: SparkJob, site: Site) -> None:
        """Refuse a job that cannot be made safe on this host."""
        self._site = dict(site.spark.options)
        refuse_unproven(job, site)
        self._drivers.refuse(site)

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write a driver's input for the time of a block."""
        return self._drivers.prepared(job, options, without=without)

    def forget(self, *identities: str) -> None:
        """Remove what is left of the drivers of a run, all of which have ended."""
        for identity in identities:
            self._drivers.forget(identity)

    def driver(self, submission: Submission) -> Driver:
        """Return the driver that runs a submission, before it is started."""
        launch = _Launch(self._spark, self._name, self._conf, submission, self._site, self._killed)
        self._driver = Driver(self._drivers.submitter(launch), _echo)
        self._driver.stop_for = _stop_for
        return self._driver

    def running(self, handle: Handle, event: DriverEvent) -> Driver:
        """Return the driver that an earlier process of the run has started."""
        self._driver = Driver(self.submitter(handle), _echo, handle=handle, stop=event.stop)
        return self._driver

    def submitter(self, handle: Handle) -> Submitter:  # noqa: ARG002 - each is of this host
        """Return what follows and ends a driver of an earlier process."""
        return folder_driver(LocalPlace(), killed=self._killed)

    def revoke_unrecorded(self, run: str, lease_ttl_s: float) -> Mapping[str, Sequence[Handle]]:
        """End the drivers of a run whose journal is lost."""
        return self._drivers.revoke_unrecorded(run, lease_ttl_s)

    def end(self) -> None:
        """End the driver."""
        if self._driver:
            self._driver.end()


def _stop_for(error: BaseException) -> Stop | None:
    is_asked = isinstance(error, SystemExit | KeyboardInterrupt)
    return Stop(Outcome.ENDED, "the program was asked to stop") if is_asked else None


def _echo(line: str) -> None:
    _log.info("%s", line.strip())
