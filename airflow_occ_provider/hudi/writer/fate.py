"""The fate of a writer: alive, late, dead, or ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, Liveness


class Fate(StrEnum):
    """The state of one write, by the table's metadata."""

    ALIVE = "alive"
    """Pending, and its heartbeat is renewed in time."""
    LATE = "late"
    """Pending with an overdue heartbeat; Hudi still counts its writer as alive."""
    DEAD = "dead"
    """Pending without a valid heartbeat: a lazy clean would roll it back."""
    COMMITTED = "committed"
    """Completed."""
    ROLLED_BACK = "rolled_back"
    """Named by a rollback, and no longer pending."""
    GONE = "gone"
    """Not in the active timeline: it was archived, or never began."""

    @property
    def beating(self) -> bool:
        """Whether Hudi still counts the writer as alive."""
        return self in (Fate.ALIVE, Fate.LATE)

    @property
    def over(self) -> bool:
        """Whether the write is no longer pending."""
        return self in (Fate.COMMITTED, Fate.ROLLED_BACK, Fate.GONE)


ENDED = tuple(fate for fate in Fate if not fate.beating)
"""The fates of a writer that no longer renews its heartbeat."""

_OF_LIVE = {Liveness.ALIVE: Fate.ALIVE, Liveness.LATE: Fate.LATE}


class Writer(NamedTuple):
    """One write at one moment.

    :param action: Hudi's action; empty if the instant is not in the active timeline.
    :param last_ms: epoch milliseconds of its heartbeat's last tick, by the storage's clock.
    :param margin_ms: milliseconds until the heartbeat expires; negative after that.
    """

    instant: str
    action: str
    fate: Fate
    last_ms: int | None = None
    margin_ms: int | None = None

    @classmethod
    def pending(cls, instant: Instant, heartbeat: Heartbeat) -> Writer:
        """Return a pending write with the fate that its heartbeat shows."""
        fate = _OF_LIVE.get(heartbeat.liveness, Fate.DEAD)
        return cls(instant.time, instant.action, fate, heartbeat.last_ms, heartbeat.margin_ms)


class Match(StrEnum):
    """The number of writers that must reach a fate."""

    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A wait for writers to reach a fate.

    :param until: the fates that end the wait.
    :param match: whether all of the writers must reach one of them, or any.
    """

    until: tuple[Fate, ...] = ENDED
    match: Match = Match.ALL

    @property
    def is_never_pending(self) -> bool:
        """Whether it waits for any writer in fates that no pending write has."""
        return self.match is Match.ANY and all(fate.over for fate in self.until)

    def reached(self, writers: Sequence[Writer]) -> tuple[Writer, ...] | None:
        """Return the writers that reached such a fate; ``None`` during the wait.

        A wait for all of no writers has ended.
        """
        reached = tuple(writer for writer in writers if writer.fate in self.until)
        enough = bool(reached) if self.match is Match.ANY else len(reached) == len(writers)
        return reached if enough else None
