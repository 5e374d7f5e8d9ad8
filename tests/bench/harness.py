"""Competitors timed side by side, and goals for their ratios.

All run in one process, one after the other in each round, so that a busy machine disturbs all
alike; the order changes from round to round, and the garbage collector is left as users have it
but for one collection before each run, so that no competitor pays for another's garbage.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Competitor:
    """One way to do a job.

    :param name: its row in the table.
    :param run: does it once.
    :param prepare: called before each run, untimed.
    """

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Goal:
    """A goal for a measured value: a ratio of medians, or a number.

    :param text: what is compared.
    :param value: what was measured.
    :param at_most: the value must not exceed it.
    :param at_least: the value must reach it.
    :param unit: of the value.
    """

    text: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    unit: str = "x"

    @property
    def met(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def __str__(self) -> str:
        target = f"at most {self.at_most:g}" if self.at_most is not None else "no target"
        if self.at_least is not None:
            target = f"at least {self.at_least:g}"
        verdict = "ok" if self.met else "MISSED"
        return f"  {self.text:<58}{self.value:>9.2f} {self.unit:<3}{target:<18}{verdict}"


def race(competitors: Sequence[Competitor], rounds: int) -> dict[str, list[float]]:
    """Time each competitor once a round, after one untimed run each.

    :param competitors: those that are timed.
    :param rounds: number of timed runs of each.
    :return: the seconds of each round by the competitor's name.
    """
    times: dict[str, list[float]] = {competitor.name: [] for competitor in competitors}
    for number in range(-1, rounds):
        shift = number % len(competitors)
        for competitor in (*competitors[shift:], *competitors[:shift]):
            competitor.prepare()
            gc.collect()
            start = time.perf_counter()
            competitor.run()
            took = time.perf_counter() - start
            if number >= 0:
                times[competitor.name].append(took)
    return times


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return each competitor's median in seconds."""
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, times: Mapping[str, Sequence[float]]) -> None:
    """Print the table of one race: median and minimum in milliseconds, and the number of rounds."""
    print(f"\n{title}\n  {'':<58}{'median':>12}{'min':>12}{'rounds':>8}")
    for name, values in times.items():
        middle, least = statistics.median(values) * 1e3, min(values) * 1e3
        print(f"  {name:<58}{middle:>9.2f} ms{least:>9.2f} ms{len(values):>8}")


def conclude(goals: Sequence[Goal]) -> int:
    """Print the goals, and return the exit code: 1 if one is missed and ``CHECK=1`` is set."""
    print("\nTargets")
    for goal in goals:
        print(goal)
    broken = [goal for goal in goals if not goal.met]
    print(f"\n{len(goals) - len(broken)} of {len(goals)} ok")
    return 1 if broken and os.environ.get("CHECK") == "1" else 0
