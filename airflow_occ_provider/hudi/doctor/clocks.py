"""The time zones and the clocks of a table's writers, by the times of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, some
from airflow_occ_provider.hudi.doctor.moments import is_original, naive_ms

_QUARTER_MS = 900_000
# A file cannot be older than the time in its name, but for what a storage rounds off.
_ROUNDED_OFF_MS = 2_000


def time_zones(operations: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield a finding if writers took their times in several zones by turns.

    One change for good is none: summer time, or a timeline that was switched to UTC.
    """
    zones = [(_zone_ms(one), one.instant.time) for one in _by_request(operations)]
    changes = sum(before[0] != after[0] for before, after in pairwise(zones))
    if changes < 2:
        return
    by_zone = {zone: [time for other, time in zones if other == zone] for zone, _ in zones}
    shown = "; ".join(f"UTC{_hours(zone)}: {some(times)}" for zone, times in sorted(by_zone.items()))
    yield Finding(
        "time_zones",
        Severity.ERROR,
        tuple(time for zone, time in zones if zone != zones[0][0]),
        f"instants were requested in {len(by_zone)} time zones by turns ({shown}): Hudi compares these "
        "times as text, and takes the wrong ones for newer",
        "give all drivers the same zone (-Duser.timezone=UTC), or create the table with "
        "hoodie.table.timeline.timezone=UTC",
    )


def fast_clocks(operations: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield a finding if requested files are older than the times in their names."""
    ahead = {one.instant.time: -_lag_ms(one) for one in _by_request(operations)}
    fast = {time: by_ms for time, by_ms in ahead.items() if by_ms > _ROUNDED_OFF_MS}
    if fast:
        yield Finding(
            "clock_skew",
            Severity.WARNING,
            tuple(sorted(fast)),
            f"the clocks of {len(fast)} of {len(ahead)} writers were ahead of the storage's by up to "
            f"{max(fast.values()) / 1000:.1f} s ({some(fast)}): heartbeats are judged by both clocks",
            "keep the clocks of the drivers and of the storage with NTP",
        )


def _by_request(operations: Sequence[ConcurrentOperation]) -> list[ConcurrentOperation]:
    return sorted(filter(is_original, operations), key=lambda one: one.requested_ms or 0)


def _zone_ms(operation: ConcurrentOperation) -> int:
    """Return how far the writer's zone is ahead of UTC; zones differ by quarters of an hour."""
    ahead_ms = naive_ms(operation.instant.time) - (operation.requested_ms or 0)
    return round(ahead_ms / _QUARTER_MS) * _QUARTER_MS


def _lag_ms(operation: ConcurrentOperation) -> int:
    """Return how much later than its name a requested file was written, whatever the zone."""
    named_ms = naive_ms(operation.instant.time) - _zone_ms(operation)
    return (operation.requested_ms or 0) - named_ms


def _hours(zone_ms: int) -> str:
    hours, minutes = divmod(abs(zone_ms) // 60_000, 60)
    return f"{'-' if zone_ms < 0 else '+'}{hours:02}:{minutes:02}"
