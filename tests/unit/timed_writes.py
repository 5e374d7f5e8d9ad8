"""Instants and writes of one day, with files that are as old as their names say."""

from __future__ import annotations

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.instant import Instant, State, naive_ms

DAY = "20261124"


def instant(at, ended=None, action="commit", ms="000"):
    """An instant of the day, requested and completed at ``HHMMSS`` times."""
    begun = f"{DAY}{at}000"
    if ended is None:
        return Instant(begun, action, State.REQUESTED, f"{begun}.{action}.requested")
    done = f"{DAY}{ended}{ms}"
    name = f"{begun}_{done}.{action}"
    return Instant(begun, action, State.COMPLETED, name, done, f"{begun}.{action}.requested")


def write(at, ended, *groups, zone_ms=0, late_ms=0, **given):
    """A completed write whose files are as old as its times say."""
    one = instant(at, ended)
    return ConcurrentOperation(
        one,
        operation_type="UPSERT",
        file_groups=frozenset(("p", group) for group in groups),
        requested_ms=naive_ms(one.time) - zone_ms + late_ms,
        inflight_ms=naive_ms(one.time) - zone_ms + late_ms + 1000,
        completed_ms=naive_ms(one.completion_time) - zone_ms + late_ms,
        **given,
    )


def checks(found):
    return [one.check for one in found]
