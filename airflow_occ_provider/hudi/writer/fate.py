"""What becomes of a writer: alive, late, dead, or over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, Liveness


class Fate(StrEnum):
    """What a table's metadata says of one write."""

    ALIVE = "alive"
    """It is pending, and its heartbeat ticks in time."""
    LATE = "late"
    """It is pending, and a tick is overdue; Hudi still counts it as alive."""
    DEAD = "dead"
    """It is pending, and a lazy clean would roll it back: its heartbeat expired, or there is none."""
    COMMITTED = "committed"
    """It is completed."""
    ROLLED_BACK = "rolled_back"
    """A rollback names it, and it is not pending any more."""
    GONE = "gone"
    """The active timeline does not know it: it was archived, or has never begun."""

    @property
    def beating(self) -> bool:
        """Whether Hudi still counts the writer as alive."""
        return self in (Fate.ALIVE, Fate.LATE)

    @property
    def over(self) -> bool:
        """Whether the write is not pending any more."""
        return self in (Fate.COMMITTED, Fate.ROLLED_BACK, Fate.GONE)


ENDED = tuple(fate for fate in Fate if not fate.beating)
"""Every fate of a writer that does not beat any more."""

_OF_LIVENESS = {
    Liveness.ALIVE: Fate.ALIVE,
    Liveness.LATE: Fate.LATE,
    Liveness.DEAD: Fate.DEAD,
    Liveness.NONE: Fate.DEAD,
}


class Writer(NamedTuple):
    """One write at one moment.

    :param instant: its requested time.
    :param action: Hudi's word for it; empty where the active timeline does not know it.
    :param fate: what became of it.
    :param last_ms: epoch milliseconds of its heartbeat's last tick, by the storage's clock.
    :param margin_ms: milliseconds until Hudi counts the heartbeat as expired, negative since then.
    """

    instant: str
    action: str
    fate: Fate
    last_ms: int | None = None
    margin_ms: int | None = None

    @classmethod
    def pending(cls, instant: Instant, heartbeat: Heartbeat) -> Writer:
        """Return a pending write as its heartbeat tells of it."""
        fate = _OF_LIVENESS[heartbeat.liveness]
        return cls(instant.time, instant.action, fate, heartbeat.last_ms, heartbeat.margin_ms)


class Match(StrEnum):
    """How many of several writers have to come to a fate."""

    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Awaited:
    """The fates that somebody waits for.

    :param until: any of these.
    :param match: whether for all of the writers, or for one.
    """

    until: tuple[Fate, ...] = ENDED
    match: Match = Match.ALL

    @property
    def is_never_pending(self) -> bool:
        """Whether one is waited for in fates that no pending write has."""
        return self.match is Match.ANY and all(fate.over for fate in self.until)

    def reached(self, writers: Sequence[Writer]) -> tuple[Writer, ...] | None:
        """Return the writers that have come to such a fate; ``None`` while that is not enough.

        Where all are waited for and there is none, it is enough.
        """
        found = tuple(writer for writer in writers if writer.fate in self.until)
        enough = bool(found) if self.match is Match.ANY else len(found) == len(writers)
        return found if enough else None
