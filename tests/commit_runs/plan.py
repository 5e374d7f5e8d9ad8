"""When a triggerer ends, and how a seed draws it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

FAULTS = 4


@dataclass(frozen=True, slots=True)
class Fault:
    """An end of the triggerer.

    :param commits: the number of commits after which it ends.
    :param kind: ``killed`` at once, or ``stopped`` as a deployment does.
    :param pause_s: seconds until another one is started.
    """

    commits: int
    kind: Literal["killed", "stopped"]
    pause_s: float


def draw(seed: int, commits: int) -> list[Fault]:
    """Return the faults of a run with so many commits, always the same ones: both kinds in turn."""
    dice = random.Random(f"commit runs {seed}/{commits}")
    at = sorted(dice.sample(range(1, commits), min(FAULTS, commits - 1)))
    return [
        Fault(count, "stopped" if number % 2 else "killed", round(dice.uniform(0, 8), 1))
        for number, count in enumerate(at)
    ]
