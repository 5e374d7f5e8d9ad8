"""The fault of each run, drawn from a seed; each pair of point and victim is drawn once first."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

POINTS = ("before", "requested", "inflight", "markers", "committing", "committed")
VICTIMS = ("jvm", "python", "task", "supervisor", "group")
FROZEN_AT = ("requested", "inflight", "markers", "committing")
KINDS = ("all", "kills", "freezes")
THAWED_AT = ("waiting", "rollback_planned", "files_deleted", "inflight_removed")


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param number: of the run.
    :param point: how far the driver has got.
    :param victim: the process that is killed; ``frozen`` for a driver that is paused beyond its timeout
        on a host that is lost.
    :param thawed: the step of the fence at which a frozen driver resumes.
    """

    number: int
    point: str
    victim: str
    thawed: str = ""

    @property
    def name(self) -> str:
        """The name of its table and its DAG run."""
        parts = (f"r{self.number:03}", self.point, self.victim, self.thawed)
        return "_".join(part for part in parts if part)


def draw(runs: int, seed: int, *, only: str = "", kinds: str = KINDS[0]) -> list[Fault]:
    """Draw the faults of so many runs."""
    kills = [(point, victim, "") for point, victim in product(POINTS, VICTIMS)]
    freezes = [(point, "frozen", step) for point, step in product(FROZEN_AT, THAWED_AT)]
    freezes.append(("before", "frozen", "waiting"))
    cells = [
        cell for cell in (*kills, *freezes) if only in "_".join(cell) and kinds in ("all", _kind(cell))
    ]
    dice, drawn = random.Random(seed), []
    while len(drawn) < runs:
        drawn += dice.sample(cells, len(cells))
    return [Fault(number, *cell) for number, cell in enumerate(drawn[:runs], 1)]


def _kind(cell: tuple[str, str, str]) -> str:
    return "freezes" if cell[1] == "frozen" else "kills"
