"""Races of several writers of one table, and how a seed draws one."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.differential.pairs import BATCHES, PARTITIONS, Template, Write
from tests.differential.writer import Point

POINTS: tuple[Point, ...] = ("requested", "before_inflight", "inflight", "commit")
_OPERATIONS = {"upsert": 65, "delete": 12, "insert": 13, "insert_overwrite": 10}
_HOT = 0.6  # the share of writes that touch the first partition
_LATEST_S, _LONGEST_S = 1.5, 1.2


@dataclass(frozen=True, slots=True)
class Turn:
    """One write of a writer.

    :param name: of the write, in its commit or its new keys.
    :param starts_s: when it starts, in seconds since the race began, or since its writer's last write.
    :param holds_s: for how long it is held at each of ``POINTS``.
    """

    name: str
    write: Write
    starts_s: float
    holds_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Race:
    """Writers that start at different times and take different time.

    :param small_files: whether inserts are routed to small files.
    """

    seed: int
    index: int
    hudi: str
    template: Template
    small_files: bool
    turns: tuple[Turn, ...]


def draw(seed: int, index: int, hudi: str) -> Race:
    """Return the race of this seed and index, always the same one."""
    dice = random.Random(f"early stop {seed}/{index}")
    kind = dice.choice(("COPY_ON_WRITE", "MERGE_ON_READ"))
    bucket = dice.random() < 0.2
    history = "replaced" if dice.random() < 0.25 else "plain"
    count = dice.choices((2, 3, 4), (50, 30, 20))[0]
    operations = dict(_OPERATIONS)
    if bucket:
        del operations["insert_overwrite"]  # its empty file ids break a rival's check (Hudi issue 11516)
    turns = tuple(_turn(dice, f"w{number}", operations) for number in range(count))
    template = Template(kind, bucket, history, metadata_table=False, version=None)
    return Race(seed, index, hudi, template, dice.random() < 0.4, turns)


def _turn(dice: random.Random, name: str, operations: dict[str, int]) -> Turn:
    operation = dice.choices(list(operations), list(operations.values()))[0]
    partition = PARTITIONS[0] if dice.random() < _HOT else dice.choice(PARTITIONS)
    changes = operation in ("upsert", "delete")
    groups = ((partition, dice.choice(BATCHES)),) if changes else ()
    inserts = (partition,) if not changes or (operation == "upsert" and dice.random() < 0.3) else ()
    holds = tuple(round(dice.uniform(0.1, _LONGEST_S), 2) for _ in POINTS)
    return Turn(name, Write(operation, groups, inserts), round(dice.uniform(0, _LATEST_S), 2), holds)
