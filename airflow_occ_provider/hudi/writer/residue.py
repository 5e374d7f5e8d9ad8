"""What dead writers leave behind that no procedure of Hudi's removes, and why that is known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_occ_provider.hudi.format.instant import Instant
    from airflow_occ_provider.hudi.format.timeline import Timeline
    from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule


class Kind(StrEnum):
    """What is left."""

    WRITE = "write"
    """A pending write that its writer does not go on with."""
    MARKERS = "markers"
    """A marker folder whose instant is not pending."""
    HEARTBEAT = "heartbeat"
    """An expired heartbeat whose instant is not pending."""
    DATA_FILES = "data_files"
    """Data files that a rolled-back write made after its rollback."""


@dataclass(frozen=True, slots=True)
class Residue:
    """One thing that is left, with the proof that nobody needs it.

    :param kind: what it is.
    :param instant: requested time of the instant that made it.
    :param path: where it lies, relative to the table's base path.
    :param proof: the facts that show it.
    :param remedy: the procedure or command that a person may choose.
    """

    kind: Kind
    instant: str
    path: str
    proof: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {
            "kind": self.kind.value,
            "instant": self.instant,
            "path": self.path,
            "proof": self.proof,
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        return f"{self.kind} of {self.instant} ({self.path}): {self.proof}. Remedy: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of writers in one table at one moment.

    :param timeline: the active timeline.
    :param takers: the rollback that names an instant, by the instant's requested time.
    :param marker_folders: names of the marker folders.
    :param ticks: epoch milliseconds of each heartbeat's last tick, by requested time.
    :param now_ms: epoch milliseconds of the look.
    :param rule: how heartbeats are judged.
    """

    timeline: Timeline
    takers: Mapping[str, Instant]
    marker_folders: Collection[str]
    ticks: Mapping[str, int]
    now_ms: int
    rule: HeartbeatRule

    def orphans(self) -> Iterator[tuple[Kind, str]]:
        """Yield the marker folders and heartbeats that belong to no pending instant.

        A heartbeat that has not expired is none, nor is anything that its writer made: it comes
        before its instant is requested, and goes only after the commit. It is one where a rollback
        has taken the instant: its driver lives, and cannot commit. A pending compaction or
        rollback has its own heartbeat and markers (Hudi 1.2.0).
        """
        for time in sorted({*self.marker_folders, *self.ticks}):
            instant = self.timeline.find(time)
            if instant and not instant.completed:
                continue
            if self.beats(time) and (instant or time not in self.takers):
                continue
            if time in self.marker_folders:
                yield Kind.MARKERS, time
            if time in self.ticks:
                yield Kind.HEARTBEAT, time

    def beats(self, time: str) -> bool:
        """Whether an instant has a heartbeat that has not expired."""
        return self.rule.judge(self.ticks.get(time), self.now_ms).live

    def ended_by(self, time: str) -> Instant | None:
        """Return what ended an instant: itself, completed, or the rollback that names it."""
        return self.timeline.find(time) or self.takers.get(time)

    def proof(self, time: str) -> str:
        """Say why nobody goes on with an instant."""
        instant, taker = self.timeline.find(time), self.takers.get(time)
        if instant:
            fate = f"instant {time} is completed ({instant.file_name})"
        elif taker:
            fate = (
                f"{taker.action} {taker.time} ({taker.state}) names instant {time}, which is not pending"
            )
        else:
            fate = f"instant {time} is not in the active timeline, and no rollback there names it"
        ticked = self.ticks.get(time)
        beat = "it has no heartbeat" if ticked is None else f"it last beat {self._age(ticked)} ago"
        return f"{fate}; {beat}"

    def _age(self, ticked_ms: int) -> str:
        return f"{(self.now_ms - ticked_ms) / 1000:.0f} s"
