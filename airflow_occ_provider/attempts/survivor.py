"""The drivers of earlier attempts that may still write when the next one is due.

Expired is not dead: a driver whose end was not seen may resume and commit. So its instant is
fenced: once its heartbeat has expired, Hudi's own lazy clean rolls it back, and a later commit of the
driver fails because its inflight file is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.record_parts import Waiting
from airflow_occ_provider.attempts.submitter import SILENCE_FACT
from airflow_occ_provider.errors import DanglingFilesError
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
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
