"""How far a consumer has read a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig

_FORMAT = 1
_LAYOUT_2 = 2
KEPT, MOST_KEPT = 200, 2000
"""Of the commits that were read: so many, and more if they may still be seen again."""


class CommitPosition(NamedTuple):
    """A commit in the order of a table."""

    requested: str
    position: str


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
        return instant.time_of(self.value)

    def commit_position(self, instant: Instant) -> CommitPosition:
        """Return an instant with its position."""
        return CommitPosition(instant.time, self.position(instant))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The commits of a table that a consumer has read.

    Those at or below a floor are read, and above it those that are named: all that the active timeline
    has, up to 2,000. So a commit that becomes visible late is distinguished from one that was read,
    without trust in clocks. They step back, and Hudi 0.15 takes an instant's time long before it writes
    its file (``HoodieSparkSqlWriter``).

    :param order: in which it reads them.
    :param floor: the position up to which all commits count as read.
    :param read: the commits above the floor that it has read, by their positions.
    :param pending: requested times of the writes that were pending when it read last. Hudi archives the
        oldest instants first, also one that has just completed after younger ones.
    """

    order: Order
    floor: str = ""
    read: tuple[CommitPosition, ...] = ()
    pending: tuple[str, ...] = ()

    @property
    def time(self) -> str:
        """The highest position of a commit that was read; empty for none."""
        return max(self.floor, self.read[-1].position if self.read else "")

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read."""
        return not self.time

    def unread(self, instants: Iterable[Instant]) -> list[Instant]:
        """Return the completed writes that were not read.

        An archived one counts by its position, unless it was pending: the archive does not show that an
        instant was a clustering.
        """
        read = frozenset(self.read)
        pending = frozenset(self.pending)
        time = self.time

        def is_unread(instant: Instant) -> bool:
            place = self.order.commit_position(instant)
            if instant.archived and instant.time not in pending:
                return place.position > time
            return place.position > self.floor and place not in read

        return [instant for instant in instants if is_unread(instant)]

    def after(
        self,
        commits: Iterable[Instant],
        order: Order,
        *,
        pending: Sequence[str] = (),
        active: Collection[str] = (),
    ) -> Checkpoint:
        """Return the checkpoint of a consumer that has read some more commits.

        :param commits: after an upgrade also those of the table that it had read before.
        :param order: of the table, which an upgrade changes.
        :param pending: requested times of the writes that are not read: the pending ones, and those that
            are left for later.
        :param active: requested times of the writes in the active timeline. The others count by the
            highest position that was read.
        """
        before = self if order is self.order else Checkpoint(order)
        read = sorted(
            {*before.read, *map(order.commit_position, commits)}, key=lambda commit: commit[::-1]
        )
        needed = {commit for commit in read if commit.requested in active} | {*read[-1:]}
        count = min(max(KEPT, len(needed)), MOST_KEPT)
        dropped = frozenset(sorted(read, key=needed.__contains__)[:-count])
        floor = max([before.floor, *(commit.position for commit in dropped & needed)])
        remaining = tuple(commit for commit in read if commit not in dropped)
        return Checkpoint(order, floor, remaining, tuple(pending[:KEPT]))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "format": _FORMAT,
            "order": self.order.value,
            "floor": self.floor,
            "read": [list(commit) for commit in self.read],
            "pending": list(self.pending),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Checkpoint:
        """Read ``to_json`` back.

        :raises ValueError: for a checkpoint of another format.
        """
        if record.get("format") != _FORMAT:
            raise ValueError(f"format {record.get('format')!r}, known is {_FORMAT}")
        read = tuple(CommitPosition(str(time), str(position)) for time, position in record["read"])
        pending = tuple(map(str, record["pending"]))
        return cls(Order(record["order"]), str(record["floor"]), read, pending)
