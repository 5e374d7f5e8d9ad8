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
    :param archived_before: requested time at which the unbroken part of the active timeline begins, if
        this is the first window and older commits are archived: all of these belong to it, unnamed.
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
    def predicate(self) -> str:
        """The condition in Spark SQL that only the rows of its commits fulfil.

        A row keeps the requested time of the commit that wrote it, also if another one copies it.
        """
        if not self.commits:
            return "false"
        named = ", ".join(f"'{commit.time}'" for commit in sorted(self.commits))
        listed, older = f"{_ROWS_OF} in ({named})", f"{_ROWS_OF} < '{self.archived_before}'"
        return f"({listed} or {older})" if self.archived_before else listed


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending writes of a table, by requested time.

    :param live: those that may still complete.
    """

    all: tuple[str, ...] = ()
    live: frozenset[str] = frozenset()


def next_window(
    since: Checkpoint | None,
    order: Order,
    completed: Iterable[Instant],
    pending: Pending = Pending(),
    *,
    archived_before: str = "",
    most: int = MOST_COMMITS,
) -> Window:
    """Return the window after a checkpoint.

    :param order: of the table.
    :param completed: its completed writes, of which those of table services do not count: they copy
        rows, which keep their commits.
    :param archived_before: as in ``Window``.
    :param most: at most so many commits.
    """
    done = since or Checkpoint(order)
    writes = [instant for instant in completed if instant.requested_action not in TABLE_SERVICE_ACTIONS]
    unread = sorted(done.unread(writes), key=order.position)
    limit = min(pending.live, default="") if order is Order.REQUESTED else ""
    free = [instant for instant in unread if not limit or instant.time < limit]
    commits = tuple(_without_ties(free, order, most))
    held = unread[-1].time if len(free) < len(unread) else ""
    holding = tuple(sorted(time for time in pending.live if time < held))
    after = advanced(done, commits, writes, order, (*pending.all, *pending.live))
    return Window(since, commits, after, holding, archived_before)


def advanced(
    done: Checkpoint,
    commits: Collection[Instant],
    writes: Iterable[Instant],
    order: Order,
    pending: Collection[str],
) -> Checkpoint:
    """Return the checkpoint of a consumer that has read some of a table's writes.

    :param commits: those that it has read now; without any the checkpoint stays as it is.
    :param writes: all completed ones.
    :param order: of the table, which an upgrade may have changed.
    :param pending: requested times of the pending ones.
    """
    if not commits:
        return done
    instants = list(writes)
    read = {commit.time for commit in commits}
    unread = {instant.time for instant in done.unread(instants)}
    before = (
        [] if done.order is order else [instant for instant in instants if instant.time not in unread]
    )
    later = sorted({*pending, *(unread - read)})
    active = {instant.time for instant in instants if not instant.archived}
    return done.after([*before, *commits], order, pending=later, active=active)


def _without_ties(ordered: list[Instant], order: Order, most: int) -> list[Instant]:
    """Return the first instants, and those with the same position as the last of them."""
    if len(ordered) <= most:
        return ordered
    last = order.position(ordered[most - 1])
    return [instant for instant in ordered if order.position(instant) <= last]
