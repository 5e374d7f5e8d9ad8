"""The fault of each run, drawn from a seed; each pair of point and victim is drawn once first."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

IN_WORKER = ("submitting", "launching", "unrecorded", "recorded", "resumed")
SUBMITTED = ("unrecorded", "recorded", "deferred")
WRITING = ("requested", "inflight", "markers", "committing", "committed")
PARTS = ("requested", "committing", "committed")
POINTS = {
    "am": (*SUBMITTED, *WRITING),
    "program": ("deferred", *WRITING),
    "node": ("unrecorded", "deferred", *WRITING),
    "frozen_node": ("recorded", "deferred", *WRITING),
    "manager": ("submitting", *SUBMITTED, *PARTS),
    "task": IN_WORKER,
    "worker": IN_WORKER,
    "triggerer": ("deferred", *PARTS),
    "scheduler": ("submitting", *SUBMITTED, "committed", "resumed"),
    "host": ("submitting", "unrecorded", "recorded", "deferred", "resumed"),
    "user": ("deferred", "requested", "committing", "committed", "resumed"),
}
OUTAGES_S = (3, 25)


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param number: of the run.
    :param point: how far the task and its driver have got.
    :param victim: what is killed, or frozen; ``host`` is the scheduler with its workers, ``user``
        one who clears the task.
    :param outage_s: the seconds until a service is started again.
    :param delay_s: the seconds after the start of ``spark-submit``, at the point ``launching``.
    """

    number: int
    point: str
    victim: str
    outage_s: int
    delay_s: float

    @property
    def name(self) -> str:
        """The name of its table and its DAG run."""
        return f"r{self.number:03}_{self.point}_{self.victim}"


def draw(runs: int, seed: int, *, only: str = "") -> list[Fault]:
    """Draw the faults of so many runs."""
    every = [cell for victim, points in POINTS.items() for cell in product(points, (victim,))]
    cells = [cell for cell in every if only in "_".join(cell)]
    dice, drawn = random.Random(seed), []
    while len(drawn) < runs:
        drawn += dice.sample(cells, len(cells))
    return [
        Fault(number, *cell, dice.choice(OUTAGES_S), dice.uniform(0, 6))
        for number, cell in enumerate(drawn[:runs], 1)
    ]
