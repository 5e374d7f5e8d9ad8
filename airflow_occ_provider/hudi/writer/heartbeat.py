"""Heartbeats: whether a writer is alive by Hudi's rule, and the storage's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

INTERVAL_OPTION = "hoodie.client.heartbeat.interval_in_ms"
TOLERABLE_MISSES_OPTION = "hoodie.client.heartbeat.tolerable.misses"
DEFAULT_INTERVAL_MS = 60_000
DEFAULT_TOLERABLE_MISSES = 2
_LATE_INTERVALS = 1.5  # leaves time for a slow storage


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """Bounds of how far the storage's clock is ahead of this host's.

    Nothing is written to measure it. A tick that is missing in one read and present in the next was
    made between the two, so its time by the storage's clock bounds the difference from both sides.
    """

    least_ms: int
    most_ms: int

    @classmethod
    def measured(cls, written_ms: int, after_ms: int, before_ms: int) -> ClockDifference:
        """Return the bounds that one file's last write gives.

        By the storage's clock it was at ``written_ms``, by this host's after ``after_ms`` and before
        ``before_ms``.
        """
        return cls(written_ms - before_ms, written_ms - after_ms)

    def narrowed(self, other: ClockDifference) -> ClockDifference:
        """Return the intersection; ``other`` if they contradict (a clock was set)."""
        least, most = max(self.least_ms, other.least_ms), min(self.most_ms, other.most_ms)
        return ClockDifference(least, most) if least <= most else other

    @property
    def minimum_ms(self) -> int:
        """The least difference in milliseconds; 0 if the clocks may agree."""
        return max(self.least_ms, -self.most_ms, 0)

    def __str__(self) -> str:
        return f"{self.least_ms / 1000:+.1f} to {self.most_ms / 1000:+.1f} s"


class Liveness(StrEnum):
    """The liveness of a writer, by its heartbeat."""

    ALIVE = "alive"
    """The last tick is at most one and a half intervals old."""
    LATE = "late"
    """A tick is overdue by half an interval, but Hudi does not count the writer as dead yet."""
    DEAD = "dead"
    """The heartbeat has expired: a lazy clean may roll the instant back."""
    NONE = "none"
    """No heartbeat: expired for a lazy clean, but eager writers never have one."""


class Heartbeat(NamedTuple):
    """The liveness of one instant's writer at one moment.

    :param last_ms: epoch milliseconds of the last tick, ``None`` without a heartbeat.
    :param margin_ms: milliseconds until the heartbeat expires; negative after that.
    """

    liveness: Liveness
    last_ms: int | None = None
    margin_ms: int | None = None

    @property
    def live(self) -> bool:
        """Whether Hudi still counts the writer as alive."""
        return self.liveness in (Liveness.ALIVE, Liveness.LATE)


@dataclass(frozen=True, slots=True)
class HeartbeatRule:
    """Hudi's rule for heartbeats; all writers of a table need the same values.

    A heartbeat expires when it is older than interval x tolerable misses, by the clock of the process
    that checks it (Hudi 1.2.0, ``HeartbeatUtils.isHeartbeatExpired``).
    """

    interval_ms: int = DEFAULT_INTERVAL_MS
    tolerable_misses: int = DEFAULT_TOLERABLE_MISSES

    @classmethod
    def of(cls, options: Mapping[str, str]) -> HeartbeatRule:
        """Return the rule that a writer's options set; missing ones have Hudi's defaults."""
        return cls(
            int(options.get(INTERVAL_OPTION, DEFAULT_INTERVAL_MS)),
            int(options.get(TOLERABLE_MISSES_OPTION, DEFAULT_TOLERABLE_MISSES)),
        )

    @property
    def tolerance_ms(self) -> int:
        """Milliseconds without a tick after which a heartbeat is expired."""
        return self.interval_ms * self.tolerable_misses

    def judge(self, last_ms: int | None, now_ms: int) -> Heartbeat:
        """Judge one heartbeat by the time at which its file was last replaced."""
        if last_ms is None:
            return Heartbeat(Liveness.NONE)
        age_ms = now_ms - last_ms
        liveness = Liveness.ALIVE
        if age_ms > self.tolerance_ms:
            liveness = Liveness.DEAD
        elif age_ms > self.interval_ms * _LATE_INTERVALS:
            liveness = Liveness.LATE
        return Heartbeat(liveness, last_ms, self.tolerance_ms - age_ms)


DEFAULT_RULE = HeartbeatRule()
"""Hudi's defaults, which ``HudiWriteOperator`` sets for its writers."""
