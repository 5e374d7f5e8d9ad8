"""The difference between this host's clock and the storage's."""

from __future__ import annotations

from dataclasses import dataclass


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
