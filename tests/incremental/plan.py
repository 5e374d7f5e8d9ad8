"""Runs of concurrent writers and one consumer, and how a seed draws one."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.differential.pairs import BATCHES, PARTITIONS, Template, Write
from tests.early_stop.race import POINTS, Turn

WRITERS, TURNS = 4, 3
_OPERATIONS = {"insert": 60, "upsert": 30, "insert_overwrite": 10}
_LONGEST_S = 0.8


@dataclass(frozen=True, slots=True)
class Run:
    """Writers, each with some writes after each other, beside table services and a consumer.

    :param services: the table services that run one after the other, each after a pause in seconds.
    :param looks_s: the pauses of the consumer, repeated.
    :param most: commits in a window, at most.
    """

    seed: int
    index: int
    template: Template
    writers: tuple[tuple[Turn, ...], ...]
    services: tuple[tuple[float, Write], ...]
    looks_s: tuple[float, ...]
    most: int


def draw(seed: int, index: int, version: int) -> Run:
    """Return the run of this seed and index, always the same one.

    :param version: of the table.
    """
    dice = random.Random(f"incremental {seed}/{index}")
    kind = dice.choice(("COPY_ON_WRITE", "MERGE_ON_READ"))
    template = Template(kind, bucket=False, history="plain", metadata_table=False, version=version)
    writers = tuple(
        tuple(_turn(dice, f"w{writer}t{turn}") for turn in range(TURNS)) for writer in range(WRITERS)
    )
    names = ["clustering"] if kind == "COPY_ON_WRITE" else ["clustering", "compaction"]
    services = tuple(
        (
            round(dice.uniform(0.5, 3), 2),
            Write(dice.choice(names), ((dice.choice(PARTITIONS), "b0"),), ()),
        )
        for _ in range(dice.choice((0, 1, 2)))
    )
    looks = tuple(round(dice.uniform(0, 0.6), 2) for _ in range(7))
    return Run(seed, index, template, writers, services, looks, dice.choice((2, 1000)))


def _turn(dice: random.Random, name: str) -> Turn:
    operation = dice.choices(list(_OPERATIONS), list(_OPERATIONS.values()))[0]
    partition = dice.choice(PARTITIONS)
    groups = ((partition, dice.choice(BATCHES)),) if operation == "upsert" else ()
    inserts = (partition,) if operation != "upsert" else ()
    holds = tuple(round(dice.uniform(0, _LONGEST_S), 2) for _ in POINTS)
    return Turn(name, Write(operation, groups, inserts), round(dice.uniform(0, 0.5), 2), holds)
