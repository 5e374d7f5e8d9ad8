"""The difference between this host's clock and the storage's, which Hudi's heartbeats depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """By how much the storage's clock is ahead of this host's, as far as it has shown itself.

    Nothing is written to measure it: a tick that one look did not see and the next one did was made
    between the two, so its time by the storage's clock bounds the difference from both sides.

    :param least_ms: milliseconds; negative where the storage is behind.
    :param most_ms: milliseconds.
    """

    least_ms: int
    most_ms: int

    @classmethod
    def shown(cls, written_ms: int, after_ms: int, before_ms: int) -> ClockDifference:
        """Return what one file shows.

        :param written_ms: epoch milliseconds of its last write, by the storage's clock.
        :param after_ms: epoch milliseconds before which it had not been written, by ours.
        :param before_ms: epoch milliseconds at which it had, by ours.
        """
        return cls(written_ms - before_ms, written_ms - after_ms)

    def narrowed(self, other: ClockDifference) -> ClockDifference:
        """Return what both show together; the other alone, where a clock was set in between."""
        least, most = max(self.least_ms, other.least_ms), min(self.most_ms, other.most_ms)
        return ClockDifference(least, most) if least <= most else other

    @property
    def sure_ms(self) -> int:
        """Milliseconds by which they differ for certain, whichever is ahead; 0 where they may agree."""
        return max(self.least_ms, -self.most_ms, 0)

    def __str__(self) -> str:
        return f"{self.least_ms / 1000:+.1f} to {self.most_ms / 1000:+.1f} s"
