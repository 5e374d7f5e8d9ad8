"""The waits of a task without a worker slot, as values that make triggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NoReturn

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.outcome import DoomedWrite, Outcome, Stop
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.attempts.survivor import Wait
from airflow_occ_provider.errors import AdmissionTimeoutError, CommitStateUnknownError
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.fate import ENDED, Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.leases.lease import Ticket


@dataclass(frozen=True, slots=True)
class AdmissionWait:
    """A wait for a lease.

    :param ttl_ms: milliseconds until the request expires without renewal.
    :param claim_ttl_ms: the same, while one process hands the request over to the next.
    """

    ticket: Ticket
    ttl_ms: int
    claim_ttl_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class InstantsWait:
    """A wait for pending instants of other writers.

    :param until: the fates of an instant that end the wait.
    :param deadline_ms: epoch milliseconds at which the table is read again in any case.
    """

    instants: tuple[str, ...]
    rule: HeartbeatRule
    until: tuple[Fate, ...] = ENDED
    deadline_ms: int = 0


@dataclass(frozen=True, slots=True)
class SurvivorWait:
    """A wait for the driver of an earlier try, which may still write."""

    of: Wait
    rule: HeartbeatRule
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DriverWait:
    """A wait for the end of a driver that outlives the task's process.

    :param handle: of the driver.
    :param rule: judges its heartbeat.
    :param started_ms: epoch milliseconds at which it was submitted.
    :param lease: the lease that is to be renewed meanwhile, if there is one.
    :param is_fenced: whether the driver runs on without the lease.
    :param early_stop: what happens once it is certain that Hudi will refuse the write.
    :param strategy: the writers' conflict resolution strategy, if it is known.
    """

    handle: Handle
    rule: HeartbeatRule
    started_ms: int
    lease: AdmissionWait | None = None
    is_fenced: bool = True
    early_stop: EarlyStop = EarlyStop.OFF
    strategy: Strategy | None = None


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """What a process that watched a driver tells the next one.

    :param stop: why it ended the driver, if it did.
    :param is_logged: whether the task's log has the whole log of the driver.
    :param unseen: why it gave the driver up without having seen its end, if it did.
    :param planned: the partitions of the driver's writes by their workload profiles, by requested time.
    :param is_leased: whether the lease was still held when the driver had ended.
    :param doomed: the finding that Hudi would refuse the driver's write, if there was one.
    """

    stop: Stop | None = None
    is_logged: bool = False
    unseen: str = ""
    planned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_leased: bool = False
    doomed: DoomedWrite | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> DriverEvent:
        """Read the event of ``HudiDriverTrigger``."""
        stop = _stop_of(event.get("stop"))
        doomed = event.get("found")
        evidence = _stop_of(doomed)
        return cls(
            stop,
            is_logged=event["status"] == "ended",
            unseen=event.get("reason", ""),
            planned=event.get("planned", {}),
            is_leased=event.get("is_leased", False),
            doomed=DoomedWrite(evidence, doomed["found_ms"]) if evidence and doomed else None,
        )


def _stop_of(event: Mapping[str, Any] | None) -> Stop | None:
    """Read a reason to stop."""
    if not event:
        return None
    return Stop(Outcome(event["outcome"]), event["line"], event["rival"], event["instant"])


TaskWait = AdmissionWait | InstantsWait | SurvivorWait | DriverWait


class WaitNeeded(BaseException):
    """Raised by a step that has to wait; not an error, so no error handler catches it."""

    def __init__(self, wait: TaskWait) -> None:
        super().__init__(wait)
        self.wait = wait


def wait_for_instants(
    run: Journal,
    wait: InstantsWait,
    reason: str,
    *,
    timeout: timedelta,
    log: Any,
) -> NoReturn:
    """Raise the wait for pending instants.

    :param wait: what to wait for; it ends at the time-out at the latest.
    :param timeout: how long the run may wait for it in total.
    :raises AdmissionTimeoutError: if the wait has timed out.
    :raises WaitNeeded: else.
    """
    waiting = run.wait(f"waiting for {reason}", wait.instants, now_ms())
    deadline_ms = waiting.since_ms + round(timeout.total_seconds() * 1000)
    if now_ms() >= deadline_ms:
        run.stop_waiting()
        raise AdmissionTimeoutError(
            f"after {timeout} still {waiting.reason}",
            remedy="look with `airflow hudi writers` what keeps them; a clustering that no driver "
            "runs is for HudiClusteringOperator(op='run'); or raise wait_timeout",
        )
    log.info("Without a worker slot: %s.", waiting.reason)
    ends_ms = min(deadline_ms, wait.deadline_ms or deadline_ms)
    raise WaitNeeded(replace(wait, deadline_ms=ends_ms))


def wait_for_survivor(run: Journal, wait: Wait, rule: HeartbeatRule, timeout: timedelta) -> NoReturn:
    """Raise the wait for the driver of an earlier try.

    :raises CommitStateUnknownError: if the wait has timed out.
    :raises WaitNeeded: else.
    """
    since_ms = run.record.waiting.since_ms if run.record.waiting else now_ms()
    deadline_ms = since_ms + round(timeout.total_seconds() * 1000)
    if now_ms() >= deadline_ms:
        run.stop_waiting()
        raise CommitStateUnknownError(
            f"commit state unknown: after {timeout} still {wait.reason}",
            remedy="end that driver, or wait for its commit; then clear the task",
        )
    raise WaitNeeded(SurvivorWait(wait, rule, deadline_ms))
