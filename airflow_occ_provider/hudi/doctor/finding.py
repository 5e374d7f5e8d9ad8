"""Findings about a table, and whether the times of its files agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.instant import elapsed_ms, naive_ms, zone_ms

_MOST_NAMED = 5
ROUNDED_OFF_MS = 2_000
"""Milliseconds by which a storage that shows whole seconds may be wrong."""
_MOST_LAG_MS = 60_000
_SHORTEST_MS = 1_000


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Data was lost or is wrong, or will be."""
    WARNING = "warning"
    """A writer, a lock or a clock is not as concurrent writers need it."""
    NOTICE = "notice"
    """Nothing is wrong now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    :param check: the name of the check that made it, such as ``unchecked_commit``.
    :param instants: requested times of the instants that show it, oldest first.
    :param evidence: what the table shows, as a sentence without a full stop.
    :param remedy: what to do about it.
    """

    check: str
    severity: Severity
    instants: tuple[str, ...]
    evidence: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "check": self.check,
            "severity": self.severity.value,
            "instants": list(self.instants),
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


def some(names: Iterable[str]) -> str:
    """Return the last few names and the number of all, as text."""
    ordered = sorted(names)
    shown = ", ".join(ordered[-_MOST_NAMED:])
    return shown if len(ordered) <= _MOST_NAMED else f"{len(ordered)}, the last {shown}"


def zone_and_lag_ms(operation: ConcurrentOperation) -> tuple[int, int] | None:
    """Return how far a zone was ahead of UTC, and how late a file was written.

    Zones differ by quarters of an hour, so that the rest is the lag; negative if the clock was fast.

    :returns: ``None`` if the two times are not of one write: no zone is that far from UTC, and no
        writer that slow.
    """
    named_ms = naive_ms(operation.instant.time)
    ahead_ms = zone_ms(operation.instant.time, operation.requested_ms)
    if named_ms is None or operation.requested_ms is None or ahead_ms is None:
        return None
    lag_ms = ahead_ms - (named_ms - operation.requested_ms)
    return (ahead_ms, lag_ms) if abs(lag_ms) <= _MOST_LAG_MS else None


def is_plausible(operation: ConcurrentOperation) -> bool:
    """Return whether a completed write's files may have the times of its writer."""
    begun, inflight, ended = operation.requested_ms, operation.inflight_ms, operation.completed_ms
    if begun is None or inflight is None or ended is None or not begun <= inflight <= ended:
        return False
    return zone_and_lag_ms(operation) is not None


def is_original(operation: ConcurrentOperation) -> bool:
    """Return whether a write's files have the times that its writer gave them.

    An upgrade and a copy write them again. They are taken for original if their times are plausible
    and, in layout 2, as far apart as the requested and the completion time. A write that took too
    short a time to tell counts as copied.
    """
    if not is_plausible(operation):
        return False
    seen_ms = (operation.completed_ms or 0) - (operation.requested_ms or 0)
    stamp = operation.instant.completion_stamp
    if stamp is None:
        return seen_ms >= _SHORTEST_MS
    named_ms = elapsed_ms(operation.instant.time, stamp)
    long_enough = named_ms is not None and named_ms >= 2 * ROUNDED_OFF_MS
    return long_enough and abs((named_ms or 0) - seen_ms) <= ROUNDED_OFF_MS
