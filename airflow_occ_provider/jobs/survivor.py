"""What stands between a task run and its next attempt: the drivers of its earlier ones.

Expired is not dead: a driver whose end nobody saw may wake up and commit. So its instant is
fenced: once its heartbeat has expired, Hudi's own lazy clean rolls it back, and the driver's
commit then finds its inflight file gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_occ_provider.hudi.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.record import Attempt, Waiting
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
    :param instants: requested times of the instants that are waited for; empty for a plain pause.
    :param until_ms: epoch milliseconds at which a plain pause ends.
    :param ended_ms: epoch milliseconds since which its driver is known to be dead, so that a
        younger tick is somebody else's; 0 where its end was not observed.
    """

    reason: str
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
    :param ticks: epoch milliseconds of each heartbeat's last tick, by requested time.
    :param now_ms: epoch milliseconds of the look.
    :param rule: how heartbeats are judged.
    """

    pending: frozenset[str]
    ticks: Mapping[str, int]
    now_ms: int
    rule: HeartbeatRule

    @classmethod
    def at(cls, snapshot: Snapshot, now_ms: int, rule: HeartbeatRule) -> Look:
        """Look at a snapshot; heartbeats first would tell of writers that have ended since.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        pending = frozenset(instant.time for instant in snapshot.timeline.pending_writes())
        return cls(pending, snapshot.heartbeats(), now_ms, rule)

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
        untold,
        ended_ms=ended_ms,
    )


def _unobserved(attempt: Attempt, look: Look, waiting: Waiting | None) -> Settled | Wait | Fence:
    told = [time for time in attempt.instants if time in look.pending]
    known = told or [time for time in (waiting.instants if waiting else ()) if time in look.pending]
    where = f"try {attempt.try_number} ran as {attempt.driver}, and nobody saw it end"
    live = look.live(known)
    if live:
        return Wait(f"{where}: its instant {', '.join(live)} is still beating", live)
    if known:
        return Fence(tuple(known))
    if attempt.instants:
        return Settled()
    return _silent(where, look, waiting)


def _silent(where: str, look: Look, waiting: Waiting | None) -> Settled | Wait:
    """Of an attempt that told no instant: whatever beats now may be its own."""
    if waiting is None:
        beating = look.live(look.pending)
        if beating:
            return Wait(f"{where}: {', '.join(beating)} may be its own", beating)
    tolerance_ms = look.rule.interval_ms * look.rule.tolerable_misses
    until_ms = (waiting.since_ms if waiting else look.now_ms) + tolerance_ms
    if look.now_ms >= until_ms:
        return Settled()
    return Wait(f"{where}: it had told no instant, and is given time to show one", until_ms=until_ms)
