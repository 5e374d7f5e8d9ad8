"""The commits of a table that a consumer can read next without losing one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, Order

MOST_COMMITS = 1000
"""In one window: its job names them in a condition."""
_ROWS_OF = "_hoodie_commit_time"


@dataclass(frozen=True, slots=True)
class Window:
    """The commits that a consumer can read next.

    It is the largest one in which no pending write can still land. In the order of completion none can.
    In that of requests it ends before the oldest live one.

    :param since: what the consumer has read; ``None`` for nothing yet.
    :param commits: completed writes that it has not read, in order; empty if there is nothing to read.
    :param checkpoint: of a consumer that has read them.
    :param held_up_by: requested times of the live pending writes before which it ends.
    :param archived_before: requested time of the oldest commit in the active timeline, if this is the
        first window and older ones are archived: all of these belong to it, unnamed.
    """

    since: Checkpoint | None
    commits: tuple[Instant, ...]
    checkpoint: Checkpoint
    held_up_by: tuple[str, ...] = ()
    archived_before: str = ""

    @property
    def start(self) -> str:
        """The position after which it begins; empty for the beginning of the table."""
        return self.since.time if self.since else ""

    @property
    def end(self) -> str:
        """The position of its last commit."""
        return max(map(self.checkpoint.order.position, self.commits), default=self.start)

    @property
    def newest(self) -> str:
        """The youngest requested time of its commits."""
        return max((one.time for one in self.commits), default="")

    @property
    def predicate(self) -> str:
        """The condition in Spark SQL that only the rows of its commits fulfil.

        A row keeps the requested time of the commit that wrote it, also if another one copies it.
        """
        named = ", ".join(f"'{one.time}'" for one in sorted(self.commits))
        listed = f"{_ROWS_OF} in ({named})" if named else "false"
        older = f"{_ROWS_OF} < '{self.archived_before}'"
        return f"({listed} or {older})" if self.archived_before else listed


def next_window(
    since: Checkpoint | None,
    order: Order,
    completed: Iterable[Instant],
    pending: Collection[str] = (),
    *,
    archived_before: str = "",
    most: int = MOST_COMMITS,
) -> Window:
    """Return the window after a checkpoint.

    :param order: of the table.
    :param completed: its completed writes, of which those of table services do not count: they copy
        rows, which keep their commits.
    :param pending: requested times of the writes that may still complete.
    :param archived_before: as in ``Window``.
    :param most: at most so many commits.
    """
    done = since or Checkpoint(order)
    writes = [one for one in completed if one.requested_action not in TABLE_SERVICE_ACTIONS]
    unread = sorted((one for one in writes if not done.has_read(one)), key=order.position)
    limit = min(pending, default="") if order is Order.REQUESTED else ""
    free = [one for one in unread if not limit or one.time < limit]
    commits = tuple(_without_ties(free, order, most))
    held = unread[-1].time if len(free) < len(unread) else ""
    holding = tuple(sorted(one for one in pending if one < held))
    after = done.after([*read_before(done, writes, order), *commits], order) if commits else done
    return Window(since, commits, after, holding, archived_before)


def read_before(done: Checkpoint, writes: Iterable[Instant], order: Order) -> list[Instant]:
    """Return the writes that a consumer has read, if the order has changed since."""
    return [] if done.order is order else [one for one in writes if done.has_read(one)]


def _without_ties(ordered: list[Instant], order: Order, most: int) -> list[Instant]:
    """Return the first instants, and those with the same position as the last of them."""
    if len(ordered) <= most:
        return ordered
    last = order.position(ordered[most - 1])
    return [one for one in ordered if order.position(one) <= last]
