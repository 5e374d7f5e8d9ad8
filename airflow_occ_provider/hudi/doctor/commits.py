"""Completed writes that no conflict check can have let through together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, is_before
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, some
from airflow_occ_provider.hudi.doctor.moments import is_original
from airflow_occ_provider.hudi.format.instant import Instant

_CHECK_ALL = (
    "give every writer of the table the same lock and OPTIMISTIC_CONCURRENCY_CONTROL (airflow hudi conf "
    "prints the options), then write the rows of the earlier one of each pair again"
)
_ONE_LOCK = "give every writer of the table the same lock provider, address, base path and lock key"


def unchecked_commits(writes: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield the pairs of writes of which Hudi's check refuses the second.

    Both wrote the same file groups, and one completed between the other's inflight file and its
    completion: the later one overwrote what it had not read (Hudi 1.2.0,
    ``SimpleConcurrentFileWritesConflictResolutionStrategy``). Table services are not checked by default.

    :param writes: the completed writes of a table without non-blocking concurrency control.
    """
    known = [one for one in writes if not one.is_table_service and one.completed_ms is not None]
    ordered = sorted(known, key=lambda one: one.completed_ms or 0)
    ended = [one.completed_ms or 0 for one in ordered]
    for place, later in enumerate(ordered):
        if not is_original(later):
            continue
        first = bisect_right(ended, later.inflight_ms or 0)
        for earlier in ordered[first:place]:
            shared = earlier.file_groups & later.file_groups
            if shared and is_before(earlier.completed_ms, later.completed_ms):
                yield _unchecked(earlier, later, shared)


def _unchecked(
    earlier: ConcurrentOperation, later: ConcurrentOperation, shared: Iterable[tuple[str, str]]
) -> Finding:
    first, second = earlier.instant.time, later.instant.time
    groups = some(f"{partition}/{file_id}".lstrip("/") for partition, file_id in shared)
    return Finding(
        "unchecked_commit",
        Severity.ERROR,
        tuple(sorted((first, second))),
        f"{first} completed while {second} was writing the same file groups ({groups}), and {second} "
        "completed too: it was not checked for conflicts, and may have overwritten rows of the first",
        _CHECK_ALL,
    )


def completion_times(instants: Iterable[Instant]) -> Iterator[Finding]:
    """Yield completion times that no common lock can have given.

    Since table version 8 Hudi takes them under its lock, so that each is greater than all earlier ones
    (Hudi 1.2.0, ``SkewAdjustingTimeGenerator``).
    """
    stamped = sorted(
        (one for one in instants if one.completion_stamp), key=lambda one: one.completion_stamp or ""
    )
    for stamp, equal in groupby(stamped, key=lambda one: one.completion_stamp or ""):
        times = tuple(one.time for one in equal)
        if len(set(times)) > 1:
            yield Finding(
                "equal_completion_times",
                Severity.ERROR,
                times,
                f"{' and '.join(times)} both completed at {stamp}: they did not hold the same lock",
                _ONE_LOCK,
            )
    for one in stamped:
        if (one.completion_stamp or "") < one.time:
            yield Finding(
                "backward_completion_time",
                Severity.ERROR,
                (one.time,),
                f"{one.time} completed at {one.completion_stamp}, before it was requested: a clock was "
                "set back, or two processes of the write are in different time zones",
                "set the zone of the table's timeline to UTC (hoodie.table.timeline.timezone), or give "
                "all drivers one zone, and keep their clocks with NTP",
            )


def colliding_instants(instants: Iterable[Instant]) -> Iterator[Finding]:
    """Yield the requested times that two actions share.

    A savepoint has that of its commit.
    """
    named = (one for one in instants if one.action != "savepoint")
    for time, equal in groupby(sorted(named), key=lambda one: one.time):
        actions = [one.requested_action for one in equal]
        if len(actions) > 1:
            yield Finding(
                "colliding_instants",
                Severity.ERROR,
                (time,),
                f"{' and '.join(actions)} were both requested at {time}: two processes took the same "
                "time without a common lock",
                _ONE_LOCK,
            )
