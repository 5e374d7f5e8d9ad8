"""Counts, shares and mismatches of a run, and whether it met its bounds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from tests.differential.observation import Observation
from tests.differential.outcome import causes
from tests.differential.pairs import WINDOWS, Pair, passed_over
from tests.differential.predict import Prediction
from tests.differential.writes import NothingPlannedError

NOTHING_PLANNED = NothingPlannedError.__name__
_UNDECIDED = 0.02
_UNDECIDED_IN_CELL = 0.05
_JUDGED_CELL = 40  # pairs; with fewer, one or two undecided pairs say nothing about a share
_SHARE = 0.20
_LOST = frozenset({"conflict", "early", "rejected"})


def is_mismatch(observation: Observation, prediction: Prediction) -> bool:
    """Whether a decided prediction differs from what Hudi did."""
    if prediction.verdict == "possible":
        return False
    return (prediction.verdict == "certain") != (observation.ours.result in _LOST)


@dataclass(slots=True)
class Report:
    """The result of a run, filled pair by pair."""

    results: Counter[str] = field(default_factory=Counter)
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    undecided: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    predicted: bool = False
    passed_over: int = 0

    def add(self, observation: Observation, prediction: Prediction | None) -> None:
        """Count a pair.

        :param prediction: ``None`` where pairs are only recorded.
        """
        pair = observation.pair
        if NOTHING_PLANNED in observation.rival.evidence:  # such as of what a clustering holds already
            self.results["nothing planned"] += 1
            return
        cell = (pair.ours.operation, pair.window)
        self.passed_over += passed_over(pair.seed, pair.index, pair.hudi)
        self.results[observation.ours.result] += 1
        self.cells[cell] += 1
        self.lost[cell] += observation.ours.result in _LOST
        for name, fate in (("ours", observation.ours), ("rival", observation.rival)):
            if fate.result == "error":
                self.problems.append(f"{_title(pair)}: {name} failed otherwise\n{fate.evidence}")
        if prediction is None:
            return
        self.predicted = True
        self.undecided[cell] += prediction.verdict == "possible"
        if is_mismatch(observation, prediction):
            self.problems.append(
                f"{_title(pair)}: MISMATCH\n"
                f"predicted {prediction.verdict}: {prediction.evidence}\n"
                f"Hudi: {observation.ours.result}: {observation.ours.evidence}\n"
                f"rival: {observation.rival.result}: {observation.rival.evidence}\n"
                f"snapshot ({observation.snapshot_at}): {observation.snapshot}"
            )

    def add_rig_error(self, pair: Pair, error: BaseException) -> None:
        """Count a pair that did not run as planned: never a match."""
        self.results["rig error"] += 1
        self.problems.append(f"{_title(pair)}: RIG ERROR\n" + "\n".join(causes(error)))

    @property
    def total(self) -> int:
        """How many pairs were compared, or could not be."""
        return sum(self.cells.values()) + self.results["rig error"]

    def failures(self) -> list[str]:
        """Return the missed bounds and other failures, one line each."""
        return [*(problem.splitlines()[0] for problem in self.problems), *self._missed_bounds()]

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        for problem in self.problems:
            yield f"\n{problem}"
        yield f"\npassed over when drawing, as unpredictable (predictable.py): {self.passed_over}"
        yield "results: " + ", ".join(f"{name} {n}" for name, n in self.results.most_common())
        yield f"\n{'operation':24}" + "".join(f"{window:>20}" for window in WINDOWS)
        for operation in sorted({operation for operation, _ in self.cells}):
            yield f"{operation:24}" + "".join(f"{self._cell(operation, w):>20}" for w in WINDOWS)
        yield "(each cell: pairs / lost" + (" / undecided)" if self.predicted else ")")
        yield from (f"MISSED BOUND: {line}" for line in self._missed_bounds())

    def _cell(self, operation: str, window: str) -> str:
        cell = (operation, window)
        text = f"{self.cells[cell]} / {self.lost[cell]}"
        return f"{text} / {self.undecided[cell]}" if self.predicted else text

    def _missed_bounds(self) -> Iterator[str]:
        total = sum(self.cells.values())
        if not total:
            yield "no pair ran"
            return
        lost = sum(self.lost.values())
        for name, count in (("conflict", lost), ("no conflict", total - lost)):
            if count < _SHARE * total:
                yield f"{name}: {count} of {total} pairs, at least {_SHARE:.0%} wanted"
        undecided = sum(self.undecided.values())
        if undecided > _UNDECIDED * total:
            yield f"undecided: {undecided} of {total} pairs, at most {_UNDECIDED:.0%} wanted"
        for cell, count in self.undecided.items():
            if self.cells[cell] >= _JUDGED_CELL and count > _UNDECIDED_IN_CELL * self.cells[cell]:
                of = f"{count} of {self.cells[cell]}"
                yield f"undecided in {cell}: {of}, at most {_UNDECIDED_IN_CELL:.0%}"


def _title(pair: Pair) -> str:
    return f"seed {pair.seed} index {pair.index} on {pair.hudi}: {json.dumps(asdict(pair))}"
