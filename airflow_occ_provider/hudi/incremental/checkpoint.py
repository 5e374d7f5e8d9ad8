"""How far a consumer has read a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig

_FORMAT = 1
_LAYOUT_2 = 2
MOST_KEPT = 200
"""Of the commits that were read: what is older than all of these is told by its position."""


class Order(StrEnum):
    """The time by which the commits of a table are read one after the other.

    A write that is requested early may complete late. Its completion time is taken under Hudi's lock, so
    by that order nothing can land among commits that were read (Hudi 1.2.0, ``InstantComparatorV2``).
    Before table version 8 there is none.
    """

    COMPLETED = "completion_time"
    REQUESTED = "requested_time"

    @classmethod
    def of(cls, config: TableConfig) -> Order:
        """Return the order in which a table can be read."""
        return cls.COMPLETED if config.layout_version >= _LAYOUT_2 else cls.REQUESTED

    def position(self, instant: Instant) -> str:
        """Return an instant's position; empty if it is pending or its time is unknown."""
        return instant.time if self is Order.REQUESTED else instant.completion_time or ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The commits of a table that a consumer has read.

    :param order: in which it reads them.
    :param time: position of the last one; all commits up to it have been read, but for late ones.
    :param read: requested times of the youngest commits that it has read, sorted. With them a commit
        that became visible late is distinguished from one that was read.
    """

    order: Order
    time: str
    read: tuple[str, ...] = ()

    def has_read(self, instant: Instant) -> bool:
        """Whether a completed write was read.

        In layout 1 a writer may take its requested time long before the instant is visible (Hudi
        0.15.0, ``HoodieSparkSqlWriter``), so one that is older than the last one may be new.
        """
        if instant.time in self.read:
            return True
        is_young = bool(self.read) and instant.time > self.read[0]
        return not (is_young and not instant.archived) and self.order.position(instant) <= self.time

    def after(self, commits: Iterable[Instant], order: Order) -> Checkpoint:
        """Return the checkpoint of a consumer that has read some more commits.

        :param order: of the table, which an upgrade changes.
        """
        more = tuple(commits)
        if not more:
            return self
        before = self.time if order is self.order else ""
        time = max(before, *map(order.position, more))
        read = sorted({*self.read, *(one.time for one in more)})
        return Checkpoint(order, time, tuple(read[-MOST_KEPT:]))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "format": _FORMAT,
            "order": self.order.value,
            "time": self.time,
            "read": list(self.read),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Checkpoint:
        """Read ``to_json`` back.

        :raises ValueError: for a checkpoint of another format.
        """
        if kept.get("format") != _FORMAT:
            raise ValueError(f"format {kept.get('format')!r}, known is {_FORMAT}")
        return cls(Order(kept["order"]), str(kept["time"]), tuple(map(str, kept["read"])))
