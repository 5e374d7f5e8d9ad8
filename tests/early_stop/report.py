"""What a series of races came to: which findings were wrong, and which losers were not named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from airflow_occ_provider.attempts.outcome import Stop
from tests.early_stop.race import Race
from tests.early_stop.rig import Course

MOST_VAIN, LEAST_NAMED = 0.05, 0.90
_LOST = ("conflict", "early")


@dataclass(slots=True)
class Report:
    """The counts of a series, filled race by race.

    :param certain: findings because a rival had completed, also those that followed a choice.
    :param choices: findings because an earlier write was pending.
    :param vain: of these, those whose earlier write did not commit.
    :param late: further ones of writes that committed before they could have been ended.
    :param named: writers that Hudi refused, and that were named before.
    """

    races: int = 0
    results: Counter[str] = field(default_factory=Counter)
    certain: int = 0
    choices: int = 0
    vain: int = 0
    late: int = 0
    lost: int = 0
    named: int = 0
    problems: list[str] = field(default_factory=list)
    unnamed: Counter[str] = field(default_factory=Counter)

    def add(self, race: Race, courses: Sequence[Course]) -> None:
        """Count a race."""
        self.races += 1
        committed = {one.instant for one in courses if one.fate.result == "committed"}
        for one in courses:
            self.results[one.fate.result] += 1
            self._add(race, one, committed)

    def _add(self, race: Race, one: Course, committed: set[str]) -> None:
        title = f"{race.hudi} seed {race.seed} index {race.index} {one.name}"
        if one.fate.result == "error":
            self.problems.append(f"{title}: failed otherwise\n{one.fate.evidence}")
        if one.fate.result in _LOST:
            self._add_loser(race, one)
        if one.loss:
            self.certain += 1
            if one.fate.result not in _LOST:
                self.problems.append(f"{title}: WRONG, {one.fate.result} although {one.loss.line}")
        if one.choice:
            self._add_choice(one.choice, one, committed)

    def _add_loser(self, race: Race, one: Course) -> None:
        self.lost += 1
        self.named += bool(one.loss or one.choice)
        if not (one.loss or one.choice):
            operation = next(turn.write.operation for turn in race.turns if turn.name == one.name)
            self.unnamed[f"{operation} {race.template.kind}"] += 1

    def _add_choice(self, choice: Stop, one: Course, committed: set[str]) -> None:
        is_vain = choice.rival not in committed
        if one.fate.result == "committed" and is_vain:
            self.late += 1  # it was past the last point at which the rig can hold it
            return
        self.choices += 1
        self.vain += is_vain

    def add_rig_error(self, race: Race, error: BaseException) -> None:
        """Count a race that did not run as planned."""
        self.problems.append(f"{race.hudi} seed {race.seed} index {race.index}: RIG ERROR {error!r}")

    def failures(self) -> list[str]:
        """Return what speaks against early stop, one line each."""
        return [*(one.splitlines()[0] for one in self.problems), *self._missed()]

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield from self.problems
        yield f"{self.races} races: " + ", ".join(
            f"{n} {name}" for name, n in self.results.most_common()
        )
        yield f"would have been ended because a rival had completed: {self.certain}"
        yield f"because an earlier write was pending: {self.choices}, of which in vain: {self.vain}"
        yield f"the same, but too late to end them: {self.late}"
        yield f"lost: {self.lost}, named before their commit: {self.named}"
        if self.unnamed:
            yield "not named: " + ", ".join(f"{n} {what}" for what, n in self.unnamed.most_common())
        yield from (f"MISSED: {line}" for line in self._missed())

    def _missed(self) -> Iterator[str]:
        if not (self.certain and self.choices):
            yield "nothing was foreseen"
        if self.vain > MOST_VAIN * self.choices:
            yield f"in vain: {self.vain} of {self.choices}, at most {MOST_VAIN:.0%} wanted"
        if self.named < LEAST_NAMED * self.lost:
            yield f"named: {self.named} of {self.lost}, at least {LEAST_NAMED:.0%} wanted"
