"""The fault of each run, drawn from a seed; each pair of moment and victim is drawn once first."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

VICTIMS = ("jvm", "python", "task", "supervisor", "group", "triggerer", "lock_service")
MOMENTS = ("planned", "yielded", "committed")
OUTAGES_S = (3, 25)


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param number: of the run.
    :param point: when it comes: once a first write has a profile, once a task has lost or given way, or
        once a first write has committed.
    :param victim: what is killed: a part of one task that runs then, or a service.
    :param outage_s: the seconds until a service is started again.
    :param delay_s: the seconds between the moment and the fault.
    :param choice: of the task, from 0 to 1.
    """

    number: int
    point: str
    victim: str
    outage_s: int
    delay_s: float
    choice: float

    @property
    def name(self) -> str:
        """The name of its table and its DAG run."""
        return f"r{self.number:03}_{self.point}_{self.victim}"


def draw(runs: int, seed: int, *, only: str = "") -> list[Fault]:
    """Draw the faults of so many runs."""
    cells = [cell for cell in product(MOMENTS, VICTIMS) if only in "_".join(cell)]
    dice, drawn = random.Random(seed), []
    while len(drawn) < runs:
        drawn += dice.sample(cells, len(cells))
    return [
        Fault(number, *cell, dice.choice(OUTAGES_S), dice.uniform(0, 4), dice.random())
        for number, cell in enumerate(drawn[:runs], 1)
    ]
