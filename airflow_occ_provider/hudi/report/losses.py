"""The writes that ended without a commit, and those that they lost to.

A rollback names the write that it takes back, and the files that this had begun. Nothing else of it
remains: neither its writer's name nor the moment of its end.

A write has lost a conflict if another one of the same file groups completed in its time: Hudi refuses
the later commit (1.2.0, ``SimpleConcurrentFileWritesConflictResolutionStrategy``). It lost to the one
that completed first; one that completed later may be its own repetition. One that began after it may
be that too, if its writer had ended before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant, elapsed_ms, from_naive_ms, naive_ms

_OWN_CLEAN_MS = 30_000
"""How long after a commit a rollback is taken for that of its own clean."""
_COMMIT_MS = 600_000
"""How long a commit may take that leaves no file: it waits for the lock, and is checked."""


class Cause(StrEnum):
    """Why a write ended without a commit."""

    CONFLICT = "conflict"
    """Another write of the same file groups ran at the same time, and completed first."""
    LIKELY_CONFLICT = "likely conflict"
    """The same, but that one began later and may be the repetition, or it was an overwrite."""
    ROLLED_BACK_EARLY = "rolled back early"
    """It was rolled back before its heartbeat could expire."""
    ENDED = "ended"
    """Its writer failed, was killed or was stopped; nothing shows a conflict."""


CONFLICTS = (Cause.CONFLICT, Cause.LIKELY_CONFLICT)


@dataclass(frozen=True, slots=True)
class EndedWrite:
    """A write that ended without a commit.

    :param time: its requested time.
    :param action: Hudi's action, such as ``deltacommit``.
    :param ended: the instant time by which it had ended: of the request of its rollback, or of the
        last sign of its writer.
    :param rollback: requested time of its rollback; empty if there is none yet.
    :param file_groups: of the files that it had begun.
    :param at_commit: whether it failed at its commit, some time after the last sign. Hudi since 1.0
        removes the heartbeat then, and leaves that of a writer that died.
    """

    time: str
    action: str
    ended: str
    rollback: str = ""
    file_groups: frozenset[FileGroupId] = frozenset()
    at_commit: bool = False

    @property
    def driver_ms(self) -> int:
        """The milliseconds from its request until it had ended."""
        return _between_ms(self.time, self.ended)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the files that it had begun, sorted."""
        return tuple(sorted({partition for partition, _ in self.file_groups}))

    def shared(self, written: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
        """Return the file groups of another write that it wrote or replaced as well.

        An overwrite replaces all file groups of its partitions, and leaves only the names of new ones.
        """
        if self.action != "replacecommit":
            return self.file_groups & written
        return frozenset(group for group in written if group[0] in self.partitions)


@dataclass(frozen=True, slots=True)
class Loss:
    """A write that ended without a commit, and why.

    :param winner: requested time of the write that it lost to; empty if nothing shows a conflict.
    :param shared: the file groups of the winner that both wrote.
    """

    write: EndedWrite
    cause: Cause = Cause.ENDED
    winner: str = ""
    shared: frozenset[FileGroupId] = frozenset()


@dataclass(frozen=True, slots=True)
class Completed:
    """What is known of a completed write.

    :param file_groups: those that it wrote or replaced.
    :param is_compaction: whether Hudi checks only older writes against it.
    :param is_repetition: whether it is of a task's second or later try.
    :param name: the task that signed it, or its kind.
    """

    file_groups: frozenset[FileGroupId] = frozenset()
    is_compaction: bool = False
    is_repetition: bool = False
    name: str = ""


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
        last = ended.ended
        if ended.at_commit and (last_ms := naive_ms(last)) is not None:
            last = from_naive_ms(last_ms + _COMMIT_MS)
        writes = self._writes[bisect_right(self._ends, ended.time) : bisect_right(self._ends, last)]
        return [write for write in writes if write.time != ended.time]

    def last_before(self, time: str) -> Instant | None:
        """Return the write that completed last before an instant time."""
        place = bisect_left(self._ends, time)
        return self._writes[place - 1] if place else None


def losses(
    ended: Iterable[EndedWrite],
    spans: Spans,
    completed: Mapping[Instant, Completed],
    rolled_back_early: Collection[str] = (),
) -> Iterator[Loss]:
    """Yield why each write ended without a commit, as far as the timeline shows it.

    :param completed: of the writes that completed beside them; one that is missing touched no file
        group, or cannot be read.
    :param rolled_back_early: requested times of the writes that were rolled back before their
        heartbeats could expire.
    """
    for write in ended:
        if write.time in rolled_back_early:
            yield Loss(write, Cause.ROLLED_BACK_EARLY)
        else:
            yield _conflict(write, spans, completed) or Loss(write)


def _conflict(write: EndedWrite, spans: Spans, completed: Mapping[Instant, Completed]) -> Loss | None:
    """Return the conflict that a write lost, if the timeline shows one."""
    for winner in spans.beside(write):
        other = completed.get(winner, Completed())
        shared = write.shared(other.file_groups)
        is_checked = not other.is_compaction or winner.time > write.time
        if not (shared and is_checked):
            continue
        if winner.time < write.time:
            # Of an overwrite nothing shows which file groups it was to replace.
            is_sure = write.action != "replacecommit"
            cause = Cause.CONFLICT if is_sure else Cause.LIKELY_CONFLICT
            return Loss(_until(write, winner), cause, winner.time, shared)
        if other.is_repetition or _cleaned_at_once(write, winner, spans):
            return None
        return Loss(_until(write, winner), Cause.LIKELY_CONFLICT, winner.time, shared)
    return None


def _until(write: EndedWrite, winner: Instant) -> EndedWrite:
    """Return a write that was alive when the winner of its conflict completed."""
    if not write.at_commit:
        return write
    return replace(write, ended=max(write.ended, winner.completion_time or ""))


def _cleaned_at_once(write: EndedWrite, winner: Instant, spans: Spans) -> bool:
    """Whether a write was taken back by the clean of the other one's own commit."""
    after_ms = _between_ms(winner.completion_time or "", write.rollback)
    is_last = bool(write.rollback) and winner == spans.last_before(write.rollback)
    return is_last and after_ms <= _OWN_CLEAN_MS


def _between_ms(first: str, second: str) -> int:
    return max(0, elapsed_ms(first, second) or 0)
