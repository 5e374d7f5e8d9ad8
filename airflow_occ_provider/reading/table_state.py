"""The values of an overview: no reads, no Airflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_occ_provider.attempts.identity import Signature, TaskKey
from airflow_occ_provider.hudi.conflict.verdict import Verdict
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.leases.rules import Blocker, QueuedRequest


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A request in the queue of a table.

    :param place: from 1, the oldest.
    :param waits_for: what blocks it, earliest first; empty for a holder.
    """

    place: int
    queued: QueuedRequest
    waits_for: tuple[Blocker, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing blocks it."""
        return not self.waits_for


@dataclass(frozen=True, slots=True)
class Bar:
    """An instant on the time axis.

    :param kind: Hudi's operation type, or the action while that is unknown.
    :param writer: the signature of the task that wrote it, if it is known.
    :param fate: ``GONE`` for none of a write's, such as of a table service without a heartbeat.
    :param begun_ms: epoch milliseconds at which it was requested, by the storage's clock.
    :param ended_ms: at which it was completed or rolled back; ``None`` while it is pending.
    :param seen_ms: the last tick of a pending write's heartbeat; ``None`` without one.
    """

    instant: str
    kind: str
    fate: Fate
    begun_ms: int
    ended_ms: int | None = None
    seen_ms: int | None = None
    writer: Signature | None = None
    is_service: bool = False

    @property
    def lost_ms(self) -> int:
        """The milliseconds of a write that came to nothing.

        They count until the last tick of a dead writer's heartbeat, or until a write was rolled back:
        when its writer stopped is not known then, so that it may have run for a shorter time.
        """
        return self.lost_since(self.begun_ms)

    def lost_since(self, since_ms: int) -> int:
        """Return the part of ``lost_ms`` after a moment.

        :param since_ms: epoch milliseconds.
        """
        if self.is_service or self.fate not in (Fate.DEAD, Fate.ROLLED_BACK):
            return 0
        return max((self.ended_ms or self.seen_ms or 0) - max(self.begun_ms, since_ms), 0)


@dataclass(frozen=True, slots=True)
class Edge:
    """Something that one instant does to another.

    :param source: requested time of the rival, or of the rollback.
    :param target: requested time of the write that loses to it, or that it rolls back.
    :param kind: ``conflict``, ``possible conflict`` or ``rollback``.
    """

    source: str
    target: str
    kind: str


@dataclass(frozen=True, slots=True)
class LiveWriter:
    """A pending write.

    :param seen_ms: epoch milliseconds of its heartbeat's last tick; ``None`` without one.
    :param margin_ms: milliseconds until that expires; negative after that.
    :param partitions: that it is known to touch.
    :param verdict: whether Hudi will refuse it; ``None`` if that was not asked.
    """

    instant: Instant
    kind: str
    fate: Fate
    seen_ms: int | None
    margin_ms: int | None
    partitions: tuple[str, ...]
    verdict: Verdict | None = None

    @property
    def sentence(self) -> str:
        """The verdict in a sentence; empty without one."""
        verdict = self.verdict
        if verdict is None:
            return ""
        if verdict.rolled_back_by:
            return f"Rolled back by {verdict.rolled_back_by.time}."
        if not verdict.conflicts:
            return "No rival."
        first = verdict.conflicts[0]
        more = f" and {len(verdict.conflicts) - 1} more" if len(verdict.conflicts) > 1 else ""
        will = "Will lose to" if verdict.certain_conflict else "May lose to"
        return f"{will} {first.rival.instant.time}{more}: {first.reason}."


@dataclass(frozen=True, slots=True)
class PendingService:
    """A pending compaction, log compaction or clustering.

    :param age_ms: milliseconds since it was planned; ``None`` if that is unknown.
    """

    instant: Instant
    fate: Fate
    partitions: tuple[str, ...]
    age_ms: int | None


def announced_writes(table: str, queue: Iterable[QueuedRequest]) -> dict[str, Signature]:
    """Return the writes that owners of requests have announced, by requested time.

    :param table: canonical base path.
    :param queue: the requests of this table, and of others.
    """
    return {
        instant: Signature("", *task, try_number=request.incarnation, site=request.owner.site)
        for queued in queue
        if table in (request := queued.request).tables and (task := TaskKey.of_owner(request.owner))
        for instant in queued.instants
    }


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one moment.

    :param at_ms: epoch milliseconds.
    :param queue: ``None`` if it was not asked for.
    :param since_ms: epoch milliseconds from which completed instants are shown and lost time counts.
    """

    table: str
    at_ms: int
    writers: tuple[LiveWriter, ...] = ()
    services: tuple[PendingService, ...] = ()
    bars: tuple[Bar, ...] = ()
    edges: tuple[Edge, ...] = ()
    queue: tuple[QueueLine, ...] | None = None
    since_ms: int = 0

    @property
    def dead(self) -> tuple[LiveWriter, ...]:
        """The pending writes whose writers are dead."""
        return tuple(writer for writer in self.writers if not writer.fate.beating)

    @property
    def signatures(self) -> dict[str, Signature]:
        """The known writers of the instants, by requested time."""
        return {bar.instant: bar.writer for bar in self.bars if bar.writer}

    @property
    def announced(self) -> dict[str, Signature]:
        """The writes that owners of requests have announced, by requested time."""
        return announced_writes(self.table, (line.queued for line in self.queue or ()))

    @property
    def unsigned(self) -> frozenset[str]:
        """The instants without a known writer that no signature in the table can show."""
        bars = (bar for bar in self.bars if bar.writer is None and bar.fate is not Fate.COMMITTED)
        return frozenset(bar.instant for bar in bars)

    def signed(self, signatures: Mapping[str, Signature]) -> TableState:
        """Return it with the writers of instants that have no signature in the table.

        :param signatures: by requested time.
        """
        unsigned = self.unsigned
        bars = (
            replace(bar, writer=signatures.get(bar.instant)) if bar.instant in unsigned else bar
            for bar in self.bars
        )
        return replace(self, bars=tuple(bars))

    @property
    def waiting(self) -> tuple[QueueLine, ...]:
        """The requests that something blocks."""
        return tuple(line for line in self.queue or () if not line.holds)

    @property
    def lost_ms(self) -> int:
        """The milliseconds since ``since_ms`` of writes that came to nothing.

        A rolled-back write counts until it was rolled back, as in ``Bar.lost_ms``: at most so long.
        """
        return sum(bar.lost_since(self.since_ms) for bar in self.bars)
