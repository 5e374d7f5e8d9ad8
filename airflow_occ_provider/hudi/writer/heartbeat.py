"""Heartbeats: whether a pending instant's writer is alive, by Hudi's rule."""

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
