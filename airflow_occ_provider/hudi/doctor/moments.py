"""Whether the times of an instant's files agree with the times in its name."""

from __future__ import annotations

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation

_SHORTEST_MS = 1_000
_ROUNDED_OFF_MS = 2_000  # a storage may show whole seconds


def naive_ms(time: str) -> int:
    """Return the milliseconds of an instant time since 1970, as if its zone were UTC.

    :param time: ``yyyyMMddHHmmssSSS``, or without the milliseconds as before Hudi 0.9.
    """
    from datetime import UTC, datetime  # a tenth of the import time allowed for the pure core

    second = datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return round(second.timestamp()) * 1000 + int(time[14:17] or 0)


def is_original(operation: ConcurrentOperation) -> bool:
    """Return whether a write's files have the times that its writer gave them.

    An upgrade and a copy write them again, all at once. They are taken for original if they are in
    order and, in layout 2, as far apart as the requested and the completion time. A write that took
    too short a time to tell counts as copied.
    """
    begun, inflight, ended = operation.requested_ms, operation.inflight_ms, operation.completed_ms
    if begun is None or inflight is None or ended is None or not begun <= inflight <= ended:
        return False
    stamp = operation.instant.completion_stamp
    if stamp is None:
        return ended - begun >= _SHORTEST_MS
    named_ms = naive_ms(stamp) - naive_ms(operation.instant.time)
    return named_ms >= 2 * _ROUNDED_OFF_MS and abs(named_ms - (ended - begun)) <= _ROUNDED_OFF_MS
