"""The fate of a writer: alive, late, dead, or ended; and what dead ones leave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, Liveness

if TYPE_CHECKING:
    from airflow_occ_provider.hudi.format.table_config import TableConfig
    from airflow_occ_provider.hudi.format.timeline import Timeline
    from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule


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


class Kind(StrEnum):
    """The kinds of residue."""

    WRITE = "write"
    """A pending write without a live writer."""
    MARKERS = "markers"
    """The marker folder of an instant that is not pending."""
    HEARTBEAT = "heartbeat"
    """The heartbeat of an instant that is not pending."""
    DATA_FILES = "data_files"
    """Data files that a write made after its rollback."""


@dataclass(frozen=True, slots=True)
class Residue:
    """One piece of residue, with the proof that no process needs it.

    :param instant: requested time of the instant that made it.
    :param path: its path, relative to the table's base path.
    :param remedy: the procedure or command that removes it, for a person to run.
    """

    kind: Kind
    instant: str
    path: str
    proof: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {**asdict(self), "kind": self.kind.value}

    def __str__(self) -> str:
        return f"{self.kind} of {self.instant} ({self.path}): {self.proof}. Remedy: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of writers in one table at one moment.

    :param rollbacks: the rollback that names an instant, by the instant's requested time.
    :param ticks: epoch milliseconds of each heartbeat's last tick, by requested time.
    """

    timeline: Timeline
    rollbacks: Mapping[str, Instant]
    marker_folders: Collection[str]
    ticks: Mapping[str, int]
    now_ms: int
    rule: HeartbeatRule

    def orphans(self) -> Iterator[tuple[Kind, str]]:
        """Yield the marker folders and heartbeats that belong to no pending instant.

        Those of a writer with a valid heartbeat are skipped: the heartbeat starts before the instant
        is requested and ends after the commit. If a rollback names the instant, they are yielded: the
        driver is alive but cannot commit. A pending compaction or rollback has its own heartbeat and
        markers (Hudi 1.2.0).
        """
        for time in sorted({*self.marker_folders, *self.ticks}):
            instant = self.timeline.find(time)
            if instant and not instant.completed:
                continue
            if self.is_alive(time) and (instant or time not in self.rollbacks):
                continue
            if time in self.marker_folders:
                yield Kind.MARKERS, time
            if time in self.ticks:
                yield Kind.HEARTBEAT, time

    def is_alive(self, time: str) -> bool:
        """Whether an instant has a heartbeat that has not expired."""
        return self.rule.judge(self.ticks.get(time), self.now_ms).live

    def ended_by(self, time: str) -> Instant | None:
        """Return the instant itself if it is completed, or the rollback that names it."""
        return self.timeline.find(time) or self.rollbacks.get(time)

    def proof(self, time: str) -> str:
        """Return the facts that show that no process continues an instant."""
        instant, rollback = self.timeline.find(time), self.rollbacks.get(time)
        if instant:
            fate = f"instant {time} is completed ({instant.file_name})"
        elif rollback:
            by = f"{rollback.action} {rollback.time} ({rollback.state})"
            fate = f"{by} names instant {time}, which is not pending"
        else:
            fate = f"instant {time} is not in the active timeline, and no rollback there names it"
        if time not in self.ticks:
            return f"{fate}; it has no heartbeat"
        return f"{fate}; its last tick was {(self.now_ms - self.ticks[time]) / 1000:.0f} s ago"


def procedure_call(procedure: str, table: TableConfig, instant: str) -> str:
    """Return the statement that calls a procedure on a table and one of its instants."""
    quoted = "".join(map(_quoted, table.full_name))
    return f"CALL {procedure}(table => '{quoted}', instant_time => '{instant}')"


def _quoted(character: str) -> str:
    """Return a character escaped for a one-line string literal of Spark SQL."""
    if character in "\\'":
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
