"""The writes that ended without a commit, and those that they lost to.

A rollback names the write that it takes back, and the files that this had begun. Nothing else of it
remains: neither its writer's name nor the moment of its end.

A write has lost a conflict if another one of the same file groups completed in its time: Hudi refuses
the later commit (1.2.0, ``SimpleConcurrentFileWritesConflictResolutionStrategy``). It lost to the one
that completed first; one that completed later may be its own repetition. One that began after it, and
whose own clean took it back, may be that too: then its writer had ended before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant, elapsed_ms

_OWN_CLEAN_MS = 30_000
"""How long after a commit a rollback is taken for that of its own clean."""


class Cause(StrEnum):
    """Why a write ended without a commit."""

    CONFLICT = "conflict"
    """Another write of the same file groups completed first."""
    TAKEN_BACK = "taken back"
    """Another writer rolled it back while its writer may have been alive."""
    ENDED = "ended"
    """Its writer failed, was killed or was stopped; nothing shows a conflict."""


@dataclass(frozen=True, slots=True)
class EndedWrite:
    """A write that ended without a commit.

    :param time: its requested time.
    :param action: Hudi's action, such as ``deltacommit``.
    :param ended: the instant time by which it had ended: of the request of its rollback, or of the
        last sign of its writer.
    :param rollback: requested time of its rollback; empty if there is none yet.
    :param file_groups: of the files that it had begun.
    """

    time: str
    action: str
    ended: str
    rollback: str = ""
    file_groups: frozenset[FileGroupId] = frozenset()

    @property
    def driver_ms(self) -> int:
        """The most milliseconds that its driver may have run."""
        return _between_ms(self.time, self.ended)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the files that it had begun, sorted."""
        return tuple(sorted({partition for partition, _ in self.file_groups}))


@dataclass(frozen=True, slots=True)
class Loss:
    """A write that ended without a commit, and why.

    :param winner: requested time of the write that it lost to; empty if nothing shows a conflict.
    :param is_certain: whether that one had begun before it, so that both ran at the same time.
    :param shared: the file groups that both wrote.
    """

    write: EndedWrite
    cause: Cause = Cause.ENDED
    winner: str = ""
    is_certain: bool = False
    shared: frozenset[FileGroupId] = frozenset()


class Spans:
    """Completed writes, by the time of their completion.

    :param writes: with a known completion time; the others are left out.
    """

    def __init__(self, writes: Iterable[Instant]) -> None:
        known = (write for write in writes if write.completion_time)
        self._writes = sorted(known, key=lambda write: write.completion_time or "")
        self._ends = [write.completion_time or "" for write in self._writes]

    def beside(self, ended: EndedWrite) -> Sequence[Instant]:
        """Return the writes that completed in the time of another one, in that order."""
        first = bisect_right(self._ends, ended.time)
        return [
            write
            for write in self._writes[first : bisect_right(self._ends, ended.ended)]
            if write.time != ended.time
        ]

    def last_before(self, time: str) -> Instant | None:
        """Return the write that completed last before an instant time."""
        place = bisect_left(self._ends, time)
        return self._writes[place - 1] if place else None


def losses(
    ended: Iterable[EndedWrite],
    spans: Spans,
    file_groups: Mapping[Instant, frozenset[FileGroupId]],
    taken_back: Collection[str] = (),
) -> Iterator[Loss]:
    """Yield why each write ended without a commit, as far as the timeline shows it.

    :param file_groups: those that the completed writes beside them wrote or replaced; one that is
        missing touched none, or cannot be read.
    :param taken_back: requested times of the writes that an eager writer rolled back.
    """
    for write in ended:
        if write.time in taken_back:
            yield Loss(write, Cause.TAKEN_BACK)
            continue
        met = ((other, file_groups.get(other, frozenset())) for other in spans.beside(write))
        winner, shared = next(
            ((other, groups & write.file_groups) for other, groups in met if groups & write.file_groups),
            (None, frozenset()),
        )
        if winner is None or _may_be_repetition(write, winner, spans):
            yield Loss(write)
        else:
            yield Loss(write, Cause.CONFLICT, winner.time, winner.time < write.time, shared)


def _may_be_repetition(write: EndedWrite, winner: Instant, spans: Spans) -> bool:
    """Whether a write that began later may be the repetition of another one."""
    if winner.time < write.time or not write.rollback:
        return False
    after_ms = _between_ms(winner.completion_time or "", write.rollback)
    return winner == spans.last_before(write.rollback) and after_ms <= _OWN_CLEAN_MS


def _between_ms(first: str, second: str) -> int:
    return max(0, elapsed_ms(first, second) or 0)
