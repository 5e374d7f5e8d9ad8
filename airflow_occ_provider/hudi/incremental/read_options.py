"""The options with which Hudi's Spark reader shows the rows of a window."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.incremental.checkpoint import Order
from airflow_occ_provider.hudi.incremental.window import Window

_QUERY_TYPE = "hoodie.datasource.query.type"
_REPLACES = frozenset({"replacecommit", "clustering"})
_COMPACTS = frozenset({"compaction", "logcompaction"})


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
