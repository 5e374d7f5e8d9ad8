"""The losses of a table, added up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeVar

from airflow_occ_provider.hudi.report.losses import CONFLICTS, Cause, Loss

_Key = TypeVar("_Key")


class Sum(NamedTuple):
    """A number of writes, and the milliseconds of their drivers."""

    writes: int = 0
    driver_ms: int = 0


class Pair(NamedTuple):
    """Writers of which one lost to the other.

    :param loser: its partitions, since a write that is rolled back leaves no name.
    :param winner: the task that signed the commit, or the kind of the write.
    """

    loser: str
    winner: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The losses of a table, added up.

    :param lost: all writes that ended without a commit.
    :param by_cause: the same by their cause.
    :param by_day: the same for each day of a request, ``yyyyMMdd``.
    :param by_partition: conflicts by the partitions that both writes touched: in each one as a whole.
    :param by_pair: conflicts by the writers that met.
    """

    lost: Sum
    by_cause: Mapping[Cause, Sum]
    by_day: Mapping[str, Mapping[Cause, Sum]]
    by_partition: Mapping[str, Sum]
    by_pair: Mapping[Pair, Sum]

    def of(self, cause: Cause) -> Sum:
        """Return the losses of one cause."""
        return self.by_cause.get(cause, Sum())


def summarize(losses: Iterable[Loss], names: Mapping[str, str]) -> Summary:
    """Return the losses of a table, added up, the largest first.

    :param names: of the winners, by requested time.
    """
    everything = list(losses)
    by_time = sorted(everything, key=_day)
    conflicts = [loss for loss in everything if loss.cause in CONFLICTS]
    return Summary(
        _sum(everything),
        _grouped(everything, lambda loss: [loss.cause]),
        {day: _grouped(of_day, lambda loss: [loss.cause]) for day, of_day in groupby(by_time, _day)},
        _grouped(conflicts, lambda loss: {partition for partition, _ in loss.shared}),
        _grouped(conflicts, lambda loss: [_pair(loss, names)]),
    )


def _day(loss: Loss) -> str:
    return loss.write.time[: len("yyyyMMdd")]


def _pair(loss: Loss, names: Mapping[str, str]) -> Pair:
    return Pair(", ".join(loss.write.partitions) or "/", names.get(loss.winner, loss.winner))


def _sum(losses: Iterable[Loss]) -> Sum:
    lengths = [loss.write.driver_ms for loss in losses]
    return Sum(len(lengths), sum(lengths))


def _grouped(losses: Iterable[Loss], keys: Callable[[Loss], Iterable[_Key]]) -> dict[_Key, Sum]:
    groups = defaultdict[_Key, list[Loss]](list)
    for loss in losses:
        for key in keys(loss):
            groups[key].append(loss)
    sums = {key: _sum(group) for key, group in groups.items()}
    return dict(sorted(sums.items(), key=lambda entry: (-entry[1].driver_ms, str(entry[0]))))
