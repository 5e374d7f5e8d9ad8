"""Tries of a task that several processes run one after the other."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.earlier_tries import begun_attempt, end_earlier_drivers
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.learned_scope import with_hint
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.record import TryKey
from airflow_occ_provider.attempts.scope import Claim, Isolation
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.submission import SparkJob, Submission
from airflow_occ_provider.attempts.submitter import Running
from airflow_occ_provider.attempts.try_lease import TryLease
from airflow_occ_provider.attempts.waits import UNWATCHED, WaitNeeded
from airflow_occ_provider.attempts.write_attempt import WriteAttempt
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.storage.table import HudiTable
from tests.contract.in_memory_submitter import Cluster, InMemorySubmitter
from tests.support.memory_store import MemoryStore
from tests.support.recorded_attempts import Store

LOG = logging.getLogger(__name__)
ABSENCE_MS = 7000
PATIENCE_S = 60
WORK = "digest-of-the-work"


@dataclass
class Lock:
    """A lock connection whose queue is in memory."""

    nodes: MemoryStore = field(default_factory=MemoryStore)
    lock_conn_id: str = "lock"
    ttl_ms: int = 30_000

    def leases(self):
        queue = Queue(self.nodes)
        queue.close = lambda: None
        return queue

    def terms(self):
        return Terms(self.ttl_ms, 2 * self.ttl_ms)

    def options(self, _):
        return {}

    def commit_lock(self, *_):
        return None


@dataclass
class World:
    """Everything that outlives a process of the task."""

    folder: object
    job: object
    store: Store = field(default_factory=Store)
    lock: Lock = field(default_factory=Lock)
    drivers: Cluster = field(default_factory=Cluster)
    forgotten: list = field(default_factory=list)

    def submitter(self, _=None):
        return InMemorySubmitter(self.job, self.drivers, outlives_task=True)


@dataclass
class Process:
    """One process of the task, with what it needs to begin or continue the attempt."""

    world: World
    try_number: int = 1
    max_tries: int = 5
    is_fenced: bool = True
    work: str = WORK
    options: dict = field(default_factory=dict)
    early_stop: EarlyStop = EarlyStop.OFF
    is_remote = True
    longest_end_s = 0.1

    def __post_init__(self):
        self.journal = Journal(self.world.store, TryKey(self.try_number, self.max_tries))
        self.table = HudiTable(str(self.world.folder.parent))
        self.submitter = self.world.submitter
        self._driver = None

    @property
    def lives(self):
        return bool(self._driver and self._driver.lives)

    def end(self):
        if self._driver:
            self._driver.end()

    def refuse(self, job, site):
        pass

    def prepared(self, job, options, *, without=()):
        return nullcontext(Submission("run_job.py", AttemptFolder("/private"), b"{}"))

    def forget(self, identity):
        self.world.forgotten.append(identity)

    def driver(self, submission):
        self._driver = Driver(self.submitter())
        return self._driver

    def running(self, handle, event):
        self._driver = Driver(self.submitter(), handle=handle, stop=event.stop)
        return self._driver

    def begun(self):
        return begun_attempt(self.journal, self.submitter, self.table.path, self.work, LOG)

    def run(self, event=UNWATCHED, *, is_deferrable=True):
        """What ``HudiWriteOperator`` does in one process."""
        begun = self.begun()
        if begun is None:
            end_earlier_drivers(self.journal, self.submitter, LOG)
        isolation = Isolation.SNAPSHOT if self.is_fenced else Isolation.SERIALIZABLE
        declared = Claim(self.table.path, None, isolation=isolation)
        claim = with_hint(declared, self.journal.record)
        lease = TryLease(
            run=self.journal,
            lock=self.world.lock,
            owner=lambda: Owner(("dag", "run", "task")),
            spark=self,
            timeout=timedelta(hours=1),
            on_granted=lambda _: None,
            on_released=lambda _: None,
            log=LOG,
            absence_ms=ABSENCE_MS,
        )
        with lease.admitted(claim, {}, is_queued=True, begun=begun, event=event) as admitted:
            signature = Signature(
                self.journal.record.identity, "dag", "run", "task", order_token=admitted.order_token
            )
            preparation = Preparation(signature, Site(Source("", ())), self.options, "off", None)
            attempt = WriteAttempt(
                run=self.journal,
                table=self.table,
                path=self.table.path,
                claim=claim,
                lock=self.world.lock,
                spark=self,
                require_commit=False,
                commits=Commits.ONE,
                early_stop=self.early_stop,
                is_queued=True,
                is_deferrable=is_deferrable,
                grants=lambda _: None,
                on_settled=lambda *_: None,
                on_margin=lambda _: None,
                log=LOG,
            )
            if begun:
                return attempt.resumed(begun, event, preparation, admitted)
            return attempt.commit(SparkJob("job.py"), self.work, preparation, admitted)


def deferred(process, **arguments):
    with pytest.raises(WaitNeeded) as needed:
        process.run(**arguments)
    return needed.value.wait


def ends(world, handle):
    submitter, deadline = world.submitter(), time.monotonic() + PATIENCE_S
    while isinstance(submitter.poll(handle), Running):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return submitter.poll(handle)
