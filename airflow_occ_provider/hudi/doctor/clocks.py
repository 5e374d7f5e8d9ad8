"""The time zones and the clocks of a table's writers, by the times of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, some
from airflow_occ_provider.hudi.doctor.moments import ROUNDED_OFF_MS, is_original, zone_and_lag_ms

_HOUR_MS = 3_600_000


def time_zones(operations: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield a finding if writers took their times in several zones by turns.

    One change for good is none: a timeline that was switched to UTC. Nor is an hour more and, later, an
    hour less: summer time.
    """
    zones = [(zone_ms, time) for zone_ms, _, time in _seen(operations)]
    changes = sum(before[0] != after[0] for before, after in pairwise(zones))
    offsets_ms = {zone_ms for zone_ms, _ in zones}
    is_summer = len(offsets_ms) == 2 and max(offsets_ms) - min(offsets_ms) == _HOUR_MS
    if changes < (3 if is_summer else 2):
        return
    by_zone = {zone: [time for other, time in zones if other == zone] for zone in offsets_ms}
    shown = "; ".join(f"UTC{_hours(zone)}: {some(times)}" for zone, times in sorted(by_zone.items()))
    yield Finding(
        "time_zones",
        Severity.ERROR,
        tuple(time for zone, time in zones if zone != zones[0][0]),
        f"instants were requested in {len(by_zone)} time zones by turns ({shown}): Hudi compares these "
        "times as text, and treats those of an eastern zone as later",
        "give all drivers the same zone (-Duser.timezone=UTC), or create the table with "
        "hoodie.table.timeline.timezone=UTC",
    )


def fast_clocks(operations: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield a finding if requested files are older than the times in their names."""
    ahead = {time: -lag_ms for _, lag_ms, time in _seen(operations)}
    fast = {time: by_ms for time, by_ms in ahead.items() if by_ms > ROUNDED_OFF_MS}
    if fast:
        yield Finding(
            "clock_skew",
            Severity.WARNING,
            tuple(sorted(fast)),
            f"the clocks of {len(fast)} of {len(ahead)} writers were ahead of the storage's by up to "
            f"{max(fast.values()) / 1000:.1f} s ({some(fast)}): heartbeats are judged by both clocks",
            "keep the clocks of the drivers and of the storage with NTP",
        )


def _seen(operations: Sequence[ConcurrentOperation]) -> list[tuple[int, int, str]]:
    """Return zone, lag and time of each write with original files, in the order of the requests.

    Not of table services: their requested file is a plan, which takes its time.
    """
    writes = (write for write in operations if not write.is_table_service and is_original(write))
    ordered = sorted(writes, key=lambda write: write.requested_ms or 0)
    measures = ((zone_and_lag_ms(write), write.instant.time) for write in ordered)
    return [(*zone_and_lag, time) for zone_and_lag, time in measures if zone_and_lag]


def _hours(zone_ms: int) -> str:
    hours, minutes = divmod(abs(zone_ms) // 60_000, 60)
    return f"{'-' if zone_ms < 0 else '+'}{hours:02}:{minutes:02}"
