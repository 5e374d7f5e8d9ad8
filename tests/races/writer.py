"""A task without Airflow: it is queued, writes, and retries as the operator does."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.attempts.attempt import planned_partitions
from airflow_occ_provider.attempts.scope import Claim, Isolation
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request
from tests.differential.writer import Writer as Latched
from tests.races.writes import Table
from tests.support.stores import Lake

TTL_MS = 30_000
_TRIES = 6
_CONFLICTS = ("HoodieWriteConflictException", "HoodieEarlyConflictDetectionException")
_PATIENCE_S = 300.0
_OWN = re.compile(r"first operation = ConcurrentOperation\(.*?instantTime=(\d+)")


@dataclass
class TaskResult:
    """The times, conflicts and error of one task.

    :param arrived_s: when it asked to start.
    :param ended_s: when it had done its work.
    :param waited_s: seconds in the queue, of each try.
    :param conflicts: tries that lost.
    :param error: the error of its last try.
    """

    name: str
    arrived_s: float = 0.0
    ended_s: float = 0.0
    waited_s: list[float] = field(default_factory=list)
    tries_s: list[float] = field(default_factory=list)
    conflicts: int = 0
    error: str = ""

    @property
    def took_s(self) -> float:
        """Seconds from its arrival to its end."""
        return self.ended_s - self.arrived_s


@dataclass
class Task:
    """One writer.

    :param table: what it writes.
    :param job: does the write; called at every try.
    :param scope: declared partitions.
    :param pause_s: seconds between the moment at which its files are known and its end.
    """

    name: str
    table: Table
    job: Callable[[], None]
    scope: Sequence[str] | None = None
    isolation: Isolation = Isolation.SNAPSHOT
    delay_s: float = 0.0
    pause_s: float = 0.0

    def run(self, queue: Queue, jvm: Any, threads: Executor, lake: Lake) -> TaskResult:
        """Run it to its end, with as many tries as that takes."""
        result = TaskResult(self.name)
        time.sleep(self.delay_s)
        result.arrived_s = time.monotonic()
        escalation: tuple[str, ...] | None = None
        for _ in range(_TRIES):
            begun_s = time.monotonic()
            ticket = self._admitted(queue, escalation)
            admitted_s = time.monotonic()
            result.waited_s.append(admitted_s - begun_s)
            with Keeper(queue, ticket, TTL_MS):
                error, instant = self._attempt(jvm, threads)
            result.tries_s.append(time.monotonic() - begun_s)
            if error and any(name in str(error) for name in _CONFLICTS):
                result.conflicts += 1
                escalation = planned_partitions(lake.open(self.table.path), instant)
            queue.release(ticket)
            if error is None:
                result.ended_s = time.monotonic()
                return result
            if not any(name in str(error) for name in _CONFLICTS):
                result.error = str(error)[:2000]
                return result
        result.error = f"lost {result.conflicts} times"
        return result

    def _admitted(self, queue: Queue, escalation: tuple[str, ...] | None) -> Ticket:
        partitions = None if self.scope is None else tuple(self.scope)
        claim = Claim(self.table.path, partitions, isolation=self.isolation)
        owner = Owner(("races", uuid.uuid4().hex, self.name))
        scope = claim.scope(self.table.options, escalation)
        ticket = queue.request(Request(uuid.uuid4().hex, owner, (scope,), TTL_MS))
        woken, deadline = threading.Event(), time.monotonic() + _PATIENCE_S
        while not queue.status(ticket, woken.set).held:
            assert time.monotonic() < deadline, f"{self.name} was not admitted in {_PATIENCE_S} s"
            woken.wait(TTL_MS / 3000)
            woken.clear()
            queue.renew(ticket)
        return ticket

    def _attempt(self, jvm: Any, threads: Executor) -> tuple[BaseException | None, str]:
        writer = Latched(jvm, threads, self.table.path, self.job, self.pause_s + _PATIENCE_S)
        if self.pause_s:
            writer.run_to("inflight")
            time.sleep(self.pause_s)
        error = writer.finish()
        if writer.instants:
            return error, writer.instants[0].partition(".")[0]
        lost = _OWN.search(str(error))  # the latches see the local disk alone
        return error, lost[1] if lost else ""
