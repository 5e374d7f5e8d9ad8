"""The commits that a consumer can read next, and the options to read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, Order

MOST_COMMITS = 1000
"""In one window: its job names them in a condition."""
_ROWS_OF = "_hoodie_commit_time"
_QUERY_TYPE = "hoodie.datasource.query.type"
_REPLACES = frozenset({"replacecommit", "clustering"})
_COMPACTS = frozenset({"compaction", "logcompaction"})


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


class Release(StrEnum):
    """The release of Hudi that reads."""

    V0_15 = "0.15"
    V1_0 = "1.0"
    V1_2 = "1.2"

    @property
    def newest_table(self) -> int:
        """The newest table version that it reads."""
        return {"0.15": 6, "1.0": 8, "1.2": 9}[self.value]


def why_scanned(
    window: Window, timeline: Iterable[Instant], config: TableConfig, *, is_settled: bool = True
) -> str:
    """Return why an incremental query may not show all of a window; empty if it does.

    A snapshot query with the window's condition shows them, and reads the whole table for it.

    :param timeline: the active timeline from which the window was made.
    :param is_settled: whether no write can become visible any more that was requested before its end.
    """
    order = window.checkpoint.order
    if window.since is None or not (window.start and window.commits):
        return "it is the first window"
    if window.since.order is not order:
        return "the table was upgraded since the checkpoint"
    if any(commit.archived for commit in window.commits):
        return "commits of the window are archived"
    if any(order.position(commit) <= window.start for commit in window.commits):
        return "a commit of the window became visible after later ones were read"
    if order is Order.COMPLETED:
        return _of_service(window, tuple(timeline), config)
    return _of_pending(window, timeline, is_settled=is_settled)


def _of_pending(window: Window, timeline: Iterable[Instant], *, is_settled: bool) -> str:
    """Return which pending write cuts the reader's timeline off, whether its writer is dead or not.

    (Hudi 0.15.0 to 1.2.0, ``TimelineUtils.handleHollowCommitIfNeeded`` with ``BLOCK``.)
    """
    for instant in timeline:
        if instant.is_write and not instant.completed and instant.time <= window.end:
            return f"{instant.time} is pending, and Hudi's reader would end before it"
    if not is_settled:
        return "a write that was requested before the window's end may not be visible yet"
    return ""


def _of_service(window: Window, timeline: Collection[Instant], config: TableConfig) -> str:
    """Return which table service or overwrite may hide rows.

    A reader leaves out the file groups that were replaced by an instant older than the youngest one up
    to the window's end, even if that completed after it (Hudi 1.2.0,
    ``AbstractTableFileSystemView.isFileGroupReplacedBeforeOrOn``). The log files that were written while
    a compaction was planned belong to a slice that is younger than their commit (1.0.2 and 1.2.0,
    ``getLatestMergedFileSlicesBeforeOrOn``).
    """
    position = Order.COMPLETED.position
    newest = max(
        (instant.time for instant in timeline if "" < position(instant) <= window.end), default=""
    )
    for instant in timeline:
        is_after = not instant.completed or position(instant) > window.end
        replaces = bool({instant.action, instant.requested_action} & _REPLACES)
        if replaces and is_after and instant.time <= newest:
            return f"{instant.time} may replace files of the window before they are read"
        compacts = config.merge_on_read and instant.requested_action in _COMPACTS
        if compacts and any(_spans(commit, instant.time) for commit in window.commits):
            return f"the compaction {instant.time} was planned while commits of the window were written"
    return ""


def _spans(commit: Instant, time: str) -> bool:
    return commit.time < time < Order.COMPLETED.position(commit)


def read_options(window: Window, release: Release, *, scanned: bool) -> Mapping[str, str]:
    """Return the options for ``spark.read.format("hudi")``.

    The window's condition has to be added. They belong to the reader alone: Spark's own configuration
    would reach every read of the session.

    :param scanned: whether to read a snapshot of the whole table instead of the commits' files.
    """
    if scanned:
        return {_QUERY_TYPE: "snapshot"}
    by_completion = window.checkpoint.order is Order.COMPLETED
    # Hudi 1.0 begins with the position itself, later releases after it: the condition removes it again.
    options = {
        _QUERY_TYPE: "incremental",
        "hoodie.datasource.query.incremental.format": "latest_state",
        "hoodie.datasource.read.begin.instanttime": window.start,
        "hoodie.datasource.read.end.instanttime": window.end,
        "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "true",
    }
    if not by_completion:
        options["hoodie.read.timeline.holes.resolution.policy"] = "BLOCK"
    if release is not Release.V0_15:
        options["hoodie.datasource.read.incr.table.version"] = "8" if by_completion else "6"
    return options


def why_unreadable(release: Release, config: TableConfig) -> str:
    """Return why a release cannot read a table; empty if it can."""
    if config.version <= release.newest_table:
        return ""
    return f"Hudi {release} reads tables up to version {release.newest_table}, not {config.version}"
