"""The waits of a task without a worker slot, as values that make triggers.

One is for drivers of earlier attempts that may still write. Expired is not dead: a driver whose end was
not seen may resume and commit. So its instant is fenced: once its heartbeat has expired, Hudi's own lazy
clean rolls it back, and a later commit of the driver fails because its inflight file is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NoReturn

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.outcome import DoomedWrite, Outcome, Stop
from airflow_occ_provider.attempts.record import AttemptRecord, Waiting
from airflow_occ_provider.attempts.submitter import SILENCE_FACT, Handle
from airflow_occ_provider.errors import (
    AdmissionTimeoutError,
    CommitStateUnknownError,
    DanglingFilesError,
)
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.fate import ENDED, Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.storage.residue import uncommitted_files
from airflow_occ_provider.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Settled:
    """The attempt can no longer change the table.

    :param ghosts: its unfinished instants; no writer needs to wait for their heartbeats.
    """

    ghosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """The attempt may still write, or that is not known yet.

    :param instants: requested times of the instants to wait for; empty for a plain pause.
    :param until_ms: epoch milliseconds at which a plain pause ends.
    :param ended_ms: epoch milliseconds since which its driver is known to be dead, so that a
        younger tick is another writer's; 0 if its end was not observed.
    """

    reason: str
    table: str
    instants: tuple[str, ...] = ()
    until_ms: int = 0
    ended_ms: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    """The attempt's heartbeats have expired; a lazy clean has to roll it back."""

    instants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteStates:
    """The states of a table's writes at one moment.

    :param over: requested times of the writes that are completed, or rolled back.
    :param ticks: epoch milliseconds of each heartbeat's last tick, by requested time.
    """

    pending: frozenset[str]
    over: frozenset[str]
    ticks: Mapping[str, int]
    now_ms: int
    rule: HeartbeatRule

    @classmethod
    def at(cls, snapshot: Snapshot, now_ms: int, rule: HeartbeatRule) -> WriteStates:
        """Read the state from a snapshot."""
        pending = frozenset(instant.time for instant in snapshot.timeline.pending_writes())
        completed = frozenset(instant.time for instant in snapshot.timeline.completed_writes())
        taken = frozenset[str]().union(*(victims for _, victims in snapshot.rollbacks()))
        return cls(pending, completed | (taken - pending), snapshot.heartbeats(), now_ms, rule)

    def live(self, instants: Iterable[str], ended_ms: int = 0) -> tuple[str, ...]:
        """Return the instants that are pending with an unexpired heartbeat.

        :param ended_ms: if given, instants that have ticked since are another writer's.
        """
        return tuple(
            time
            for time in sorted(instants)
            if time in self.pending
            and self.rule.judge(self.ticks.get(time), self.now_ms).live
            and not (ended_ms and self.ticks[time] > ended_ms)
        )


@dataclass(frozen=True, slots=True)
class Dangling:
    """Files that a driver wrote after its instant had been rolled back.

    Hudi never removes them: its clean considers only instants that are in the timeline. Nor does this
    provider: the metadata table lists them, and breaks if one is deleted by hand (1.2.0).

    :param files: names of the data files that its markers name.
    :param visible: whether readers count them as committed: Hudi (1.2.0, ``HoodieFileGroup``) does so
        for files older than the unbroken part of the active timeline.
    """

    instant: str
    files: tuple[str, ...]
    visible: bool

    def error(self) -> DanglingFilesError:
        """Return the error for files that readers see."""
        return DanglingFilesError(
            f"{self.message}. The timeline holds no older commit, so Hudi's readers take them for "
            "committed: rows may be there twice",
            outcome="committed",
            remedy=self.remedy,
            committed=True,
        )

    @property
    def message(self) -> str:
        """What happened."""
        return (
            f"the driver of instant {self.instant} went on after it had been rolled back, and left "
            f"{len(self.files)} files that no clean removes: {', '.join(self.files)}"
        )

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return f"remove them with Hudi's HoodieRepairTool, for instant {self.instant}"


def dangling(attempts: Iterable[AttemptRecord], snapshot: Snapshot) -> tuple[Dangling, ...]:
    """Find what fenced drivers wrote after the fence, as far as it is visible now."""
    fenced = (time for attempt in attempts if not attempt.end for time in attempt.instants)
    oldest = snapshot.timeline.unbroken_since()
    orphans = []
    for time in fenced:
        names = () if snapshot.timeline.find(time) else uncommitted_files(snapshot, time)
        if names and snapshot.ended_as(time) in (Fate.ROLLED_BACK, Fate.GONE):
            orphans.append(Dangling(time, names, time < oldest))
    return tuple(orphans)


def judge(attempt: AttemptRecord, state: WriteStates, waiting: Waiting | None) -> Settled | Wait | Fence:
    """Decide what has to be done about an earlier attempt before the next one."""
    return _observed(attempt, state) if attempt.end else _unobserved(attempt, state, waiting)


def _observed(attempt: AttemptRecord, state: WriteStates) -> Settled | Wait:
    unfinished = tuple(time for time in attempt.instants if time in state.pending)
    if attempt.log_read:
        return Settled(unfinished)
    ended_ms = attempt.ended_ms + state.rule.interval_ms // 4  # the storage has its own clock
    unrecorded = state.live(state.pending.difference(attempt.instants), ended_ms)
    if not unrecorded:
        return Settled(unfinished)
    return Wait(
        f"the log of try {attempt.try_number} was not read to its end, so {', '.join(unrecorded)} may "
        "be what it left; its heartbeat will tell",
        attempt.table,
        unrecorded,
        ended_ms=ended_ms,
    )


def _unobserved(
    attempt: AttemptRecord, state: WriteStates, waiting: Waiting | None
) -> Settled | Wait | Fence:
    recorded = [time for time in attempt.instants if time in state.pending]
    instants = recorded or [
        time for time in (waiting.instants if waiting else ()) if time in state.pending
    ]
    where = f"try {attempt.try_number} ran as {attempt.driver}, and its end was not seen"
    silence_s = attempt.driver.facts.get(SILENCE_FACT) if attempt.driver else None
    since_ms = waiting.since_ms if waiting else state.now_ms
    if silence_s and state.now_ms < since_ms + silence_s * 1000:
        # It may be paused before its first instant, so that no heartbeat shows it.
        reason = f"{where}: it was revoked, and a silence of {silence_s:g} s will prove its end"
        return Wait(reason, attempt.table, until_ms=round(since_ms + silence_s * 1000))
    live = state.live(instants)
    if live:
        return Wait(f"{where}: its instant {', '.join(live)} is still beating", attempt.table, live)
    if instants:
        return Fence(tuple(instants))
    if state.over.intersection(attempt.instants):
        return Settled()
    return _silent(attempt, where, state, waiting)


def _silent(
    attempt: AttemptRecord, where: str, state: WriteStates, waiting: Waiting | None
) -> Settled | Wait:
    """Judge an attempt without a recorded instant: any beating instant may be its own."""
    if waiting is None or not waiting.instants:
        beating = state.live(state.pending)
        if beating:
            return Wait(f"{where}: {', '.join(beating)} may be its own", attempt.table, beating)
    tolerance_ms = state.rule.interval_ms * state.rule.tolerable_misses
    until_ms = (waiting.since_ms if waiting else state.now_ms) + tolerance_ms
    if state.now_ms >= until_ms:
        return Settled()
    reason = f"{where}: it had logged no instant, and is given time to show one"
    return Wait(reason, attempt.table, until_ms=until_ms)


@dataclass(frozen=True, slots=True)
class AdmissionWait:
    """A wait for a lease.

    :param ttl_ms: milliseconds until the request expires without renewal.
    :param claim_ttl_ms: the same, while one process hands the request over to the next.
    :param until_next: whether it ends once the request is the next one, so that its driver can stand by.
    """

    ticket: Ticket
    ttl_ms: int
    claim_ttl_ms: int
    deadline_ms: int
    until_next: bool = False


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
    :param has_ended: whether it has proven the driver's end. That is then not to be proven anew, and the
        task's log has the driver's whole log.
    :param unseen: why it gave the driver up without having seen its end, if it did.
    :param planned: the partitions of the driver's writes by their workload profiles, by requested time.
    :param is_leased: whether the lease was still held when the driver had ended.
    :param is_released: whether it was released then.
    :param doomed: the finding that Hudi would refuse the driver's write, if there was one.
    """

    stop: Stop | None = None
    has_ended: bool = False
    unseen: str = ""
    planned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_leased: bool = False
    is_released: bool = False
    doomed: DoomedWrite | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> DriverEvent:
        """Read the event of ``HudiDriverTrigger``."""
        stop = _stop_of(event.get("stop"))
        doomed = event.get("found")
        evidence = _stop_of(doomed)
        return cls(
            stop,
            has_ended=event["status"] == "ended",
            unseen=event.get("reason", ""),
            planned=event.get("planned", {}),
            is_leased=event.get("is_leased", False),
            is_released=event.get("is_released", False),
            doomed=DoomedWrite(evidence, doomed["found_ms"]) if evidence and doomed else None,
        )


UNWATCHED = DriverEvent()
"""Of a driver that no other process has watched."""


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
