"""Confidence intervals by a seeded bootstrap: runs are drawn anew, and the items within each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Sample = Sequence[Sequence[T]]
"""One arm: its runs, and the items of each, which are its writers or the run as a whole."""

DRAWS = 1000
LEVEL = 0.95


class Interval(NamedTuple):
    """A measured value between the ends of its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def interval(
    statistic: Callable[..., float], *samples: Sample[T], seed: int = 7, draws: int = DRAWS
) -> Interval:
    """Return a statistic of samples with its 95 % interval, by the percentiles of many draws.

    The writers of one run depend on each other; only their runs do not. With two or three runs the
    interval is a rough one.

    :param statistic: of as many flat lists as there are samples.
    """
    rng = random.Random(seed)
    found = sorted(statistic(*(_drawn(sample, rng) for sample in samples)) for _ in range(draws))
    tail = round((1 - LEVEL) / 2 * draws)
    value = statistic(*([item for run in sample for item in run] for sample in samples))
    return Interval(value, found[tail], found[-1 - tail])


def _drawn(sample: Sample[T], rng: random.Random) -> list[T]:
    runs = rng.choices(sample, k=len(sample)) if sample else []
    return [item for run in runs for item in rng.choices(run, k=len(run))]
