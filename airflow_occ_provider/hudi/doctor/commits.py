"""Completed writes that no conflict check can have let through together."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, is_before
from airflow_occ_provider.hudi.conflict.unchecked import duplications
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, some
from airflow_occ_provider.hudi.doctor.moments import (
    ROUNDED_OFF_MS,
    elapsed_ms,
    is_original,
    is_plausible,
)
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.instant_time import naive_ms
from airflow_occ_provider.hudi.format.timeline import collisions

_CHECK_ALL = (
    "give every writer of the table the same lock and OPTIMISTIC_CONCURRENCY_CONTROL (airflow hudi conf "
    "prints the options), then write the rows of those that completed first again"
)
_ONE_LOCK = "give every writer of the table the same lock provider, address, base path and lock key"


def unchecked_commits(writes: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield the completed writes that Hudi's commit check has to refuse.

    Another one completed between its inflight file and its completion, and wrote the same file groups:
    it overwrote what it had not read (Hudi 1.2.0,
    ``SimpleConcurrentFileWritesConflictResolutionStrategy``).
    Table services are not checked by default.

    :param writes: the completed writes of a table without non-blocking concurrency control.
    """
    plausible = [write for write in writes if not write.is_table_service and is_plausible(write)]
    ordered = sorted(plausible, key=lambda write: write.completed_ms or 0)
    ended = [write.completed_ms or 0 for write in ordered]
    for place, later in enumerate(ordered):
        if not is_original(later):
            continue
        beside = ordered[bisect_right(ended, later.inflight_ms or 0) : place]
        before = [write for write in beside if is_before(write.completed_ms, later.completed_ms)]
        shared = {write.instant.time: write.file_groups & later.file_groups for write in before}
        overwritten = {time: groups for time, groups in shared.items() if groups}
        if overwritten:
            yield _unchecked(later.instant.time, overwritten)


def _unchecked(later: str, earlier: Mapping[str, frozenset[FileGroupId]]) -> Finding:
    groups = frozenset[FileGroupId]().union(*earlier.values())
    named = some(f"{partition}/{file_id}".lstrip("/") for partition, file_id in groups)
    return Finding(
        "unchecked_commit",
        Severity.ERROR,
        tuple(sorted((later, *earlier))),
        f"{some(earlier)} completed while {later} was writing the same file groups ({named}), and "
        f"{later} completed too: it was not checked for conflicts, and may have overwritten their rows",
        _CHECK_ALL,
    )


def possible_duplicates(writes: Sequence[ConcurrentOperation], *, has_keys: bool) -> Iterator[Finding]:
    """Yield the overlapping writes after which rows may be there twice.

    Hudi's check compares file groups, and these writes have none in common: both created theirs in one
    partition, or both overwrote one that was empty.

    :param writes: the completed writes of a table without non-blocking concurrency control.
    :param has_keys: whether the table has record keys.
    """
    pairs = defaultdict[str, list[tuple[str, str, tuple[str, ...]]]](list)
    for earlier, later in _overlapping(writes):
        for duplication in duplications(later, [earlier], has_keys=has_keys):
            times = earlier.instant.time, later.instant.time
            pairs[duplication.reason].append((*times, duplication.partitions))
    for reason, overlaps in sorted(pairs.items()):
        shown = some(
            f"{first} and {second} in {some(where) or '/'}" for first, second, where in overlaps
        )
        yield Finding(
            "possible_duplicates",
            Severity.WARNING,
            tuple(sorted({time for first, second, _ in overlaps for time in (first, second)})),
            f"writes overlapped in time ({shown}): {reason}. Hudi allows it, since they share no file "
            "group",
            "look for keys with two rows in these partitions, and write them again; give such tasks a "
            "scope, or isolation='serializable', so that they are queued",
        )


def _overlapping(
    writes: Sequence[ConcurrentOperation],
) -> Iterator[tuple[ConcurrentOperation, ConcurrentOperation]]:
    """Yield the pairs of writes of which neither saw the other, the one that completed first first.

    By the times of their files, or by those in their names if the files were copied.
    """
    of_data = [write for write in writes if not write.is_table_service]
    by_files = [
        (write.completed_ms or 0, write.inflight_ms or 0, write)
        for write in of_data
        if is_original(write)
    ]
    by_names = [
        (ended_ms, begun_ms + 2 * ROUNDED_OFF_MS, write)
        for write in of_data
        if (begun_ms := naive_ms(write.instant.time)) is not None
        and (ended_ms := naive_ms(write.instant.completion_stamp or "")) is not None
    ]
    originals = {write.instant.time for *_, write in by_files}
    for spans in (by_files, by_names):
        ordered = sorted(spans, key=lambda span: span[:2])
        ended = [span[0] for span in ordered]
        for place, (_, begun_ms, later) in enumerate(ordered):
            for *_, earlier in ordered[bisect_right(ended, begun_ms) : place]:
                both = {earlier.instant.time, later.instant.time} <= originals
                if spans is by_files or not both:
                    yield earlier, later


def completion_times(instants: Iterable[Instant]) -> Iterator[Finding]:
    """Yield completion times that no common lock can have given.

    Since table version 8 Hudi takes them under its lock, so that each is greater than all earlier ones
    (Hudi 1.2.0, ``SkewAdjustingTimeGenerator``). An upgrade takes them from files instead, in whole
    seconds on some storages.
    """
    stamped = sorted(
        (instant for instant in instants if instant.completion_stamp),
        key=lambda instant: instant.completion_stamp or "",
    )
    for stamp, equal in groupby(stamped, key=lambda instant: instant.completion_stamp or ""):
        times = tuple(instant.time for instant in equal)
        if len(set(times)) > 1 and not stamp.endswith("000"):
            yield Finding(
                "equal_completion_times",
                Severity.ERROR,
                times,
                f"{' and '.join(times)} both completed at {stamp}: they did not hold the same lock",
                _ONE_LOCK,
            )
    for instant in stamped:
        took_ms = elapsed_ms(instant.time, instant.completion_stamp or "")
        if took_ms is not None and took_ms < -ROUNDED_OFF_MS:
            yield Finding(
                "backward_completion_time",
                Severity.ERROR,
                (instant.time,),
                f"{instant.time} completed at {instant.completion_stamp}, before it was requested: a "
                "clock was set back, or two processes of the write are in different time zones",
                "set the zone of the table's timeline to UTC (hoodie.table.timeline.timezone), or give "
                "all drivers one zone, and keep their clocks with NTP",
            )


def colliding_instants(instants: Iterable[Instant]) -> Iterator[Finding]:
    """Yield the requested times that two actions share.

    A savepoint has that of its commit.
    """
    for equal in collisions(instants):
        actions = [instant.requested_action for instant in equal]
        time = equal[0].time
        yield Finding(
            "colliding_instants",
            Severity.ERROR,
            (time,),
            f"{' and '.join(actions)} were both requested at {time}: two processes took the same "
            "time without a common lock",
            _ONE_LOCK,
        )
