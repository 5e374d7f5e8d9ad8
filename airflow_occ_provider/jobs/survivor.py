"""What stands between a task run and its next attempt: the drivers of its earlier ones.

Expired is not dead: a driver whose end nobody saw may wake up and commit. So its instant is
fenced: once its heartbeat has expired, Hudi's own lazy clean rolls it back, and the driver's
commit then finds its inflight file gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_occ_provider.errors import DanglingFilesError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.record import Attempt, Waiting
from airflow_occ_provider.storage.residue import uncommitted_files
from airflow_occ_provider.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing of the attempt can reach the table any more.

    :param ghosts: its unfinished instants, whose heartbeats nobody needs to wait for.
    """

    ghosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """The attempt may still write, or nobody can tell yet.

    :param reason: for people.
    :param table: base path of the table where it may still write.
    :param instants: requested times of the instants that are waited for; empty for a plain pause.
    :param until_ms: epoch milliseconds at which a plain pause ends.
    :param ended_ms: epoch milliseconds since which its driver is known to be dead, so that a
        younger tick is somebody else's; 0 where its end was not observed.
    """

    reason: str
    table: str
    instants: tuple[str, ...] = ()
    until_ms: int = 0
    ended_ms: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    """Its instants are given up by their heartbeats; a lazy clean has to roll them back.

    :param instants: their requested times.
    """

    instants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """The table at one moment.

    :param pending: requested times of the pending writes.
    :param over: requested times of the writes that are completed, or rolled back.
    :param ticks: epoch milliseconds of each heartbeat's last tick, by requested time.
    :param now_ms: epoch milliseconds of the look.
    :param rule: how heartbeats are judged.
    """

    pending: frozenset[str]
    over: frozenset[str]
    ticks: Mapping[str, int]
    now_ms: int
    rule: HeartbeatRule

    @classmethod
    def at(cls, snapshot: Snapshot, now_ms: int, rule: HeartbeatRule) -> Look:
        """Look at a snapshot.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        pending = frozenset(instant.time for instant in snapshot.timeline.pending_writes())
        completed = frozenset(instant.time for instant in snapshot.timeline.completed_writes())
        taken = frozenset[str]().union(*(victims for _, victims in snapshot.rollbacks()))
        return cls(pending, completed | (taken - pending), snapshot.heartbeats(), now_ms, rule)

    def live(self, instants: Iterable[str], ended_ms: int = 0) -> tuple[str, ...]:
        """Return those that are pending with a heartbeat that has not expired.

        :param ended_ms: where given, those that have ticked since are not ours.
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
    """What a driver wrote after its instant had been rolled back.

    Nothing of Hudi's removes it: its clean looks at instants that are in the timeline.

    :param instant: requested time of the instant.
    :param files: names of the data files that its markers tell of.
    :param visible: whether readers take them for committed: Hudi (1.2.0, ``HoodieFileGroup``) does so
        with whatever is older than the oldest instant of the active timeline.
    """

    instant: str
    files: tuple[str, ...]
    visible: bool

    def error(self) -> DanglingFilesError:
        """Return the error that it deserves where readers see it."""
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


def dangling(attempts: Iterable[Attempt], snapshot: Snapshot) -> tuple[Dangling, ...]:
    """Find what fenced drivers wrote after the fence, as far as it can be seen now.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    fenced = (time for attempt in attempts if not attempt.end for time in attempt.instants)
    completed = snapshot.timeline.completed_writes()
    oldest = min((one.time for one in completed), default="")
    found = []
    for time in fenced:
        names = () if snapshot.timeline.find(time) else uncommitted_files(snapshot, time)
        if names:
            found.append(Dangling(time, names, time < oldest))
    return tuple(found)


def judge(attempt: Attempt, look: Look, waiting: Waiting | None) -> Settled | Wait | Fence:
    """Decide what an earlier attempt asks for before the next may start.

    :param attempt: an unsettled one.
    :param look: the table now.
    :param waiting: what the task run waited for so far.
    """
    return _observed(attempt, look) if attempt.end else _unobserved(attempt, look, waiting)


def _observed(attempt: Attempt, look: Look) -> Settled | Wait:
    own = tuple(time for time in attempt.instants if time in look.pending)
    if attempt.log_read:
        return Settled(own)
    ended_ms = attempt.ended_ms + look.rule.interval_ms // 4  # the storage's clock is another
    untold = look.live(look.pending.difference(attempt.instants), ended_ms)
    if not untold:
        return Settled(own)
    return Wait(
        f"nobody read the log of try {attempt.try_number} to its end, so {', '.join(untold)} may be "
        "what it left; its heartbeat will tell",
        attempt.table,
        untold,
        ended_ms=ended_ms,
    )


def _unobserved(attempt: Attempt, look: Look, waiting: Waiting | None) -> Settled | Wait | Fence:
    told = [time for time in attempt.instants if time in look.pending]
    known = told or [time for time in (waiting.instants if waiting else ()) if time in look.pending]
    where = f"try {attempt.try_number} ran as {attempt.driver}, and nobody saw it end"
    live = look.live(known)
    if live:
        return Wait(f"{where}: its instant {', '.join(live)} is still beating", attempt.table, live)
    if known:
        return Fence(tuple(known))
    if look.over.intersection(attempt.instants):
        return Settled()
    return _silent(attempt, where, look, waiting)


def _silent(attempt: Attempt, where: str, look: Look, waiting: Waiting | None) -> Settled | Wait:
    """Of an attempt that told no instant of this table: whatever beats may be its own."""
    if waiting is None or not waiting.instants:
        beating = look.live(look.pending)
        if beating:
            return Wait(f"{where}: {', '.join(beating)} may be its own", attempt.table, beating)
    tolerance_ms = look.rule.interval_ms * look.rule.tolerable_misses
    until_ms = (waiting.since_ms if waiting else look.now_ms) + tolerance_ms
    if look.now_ms >= until_ms:
        return Settled()
    reason = f"{where}: it had told no instant, and is given time to show one"
    return Wait(reason, attempt.table, until_ms=until_ms)
