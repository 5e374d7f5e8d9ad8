"""Instant times, ``yyyyMMddHHmmssSSS`` in the zone of their writer, and moments.

The zone is that of the writer's JVM unless the table's timeline is in UTC. It is never the zone of this
process: an instant's own requested file shows it.
"""

from __future__ import annotations

_QUARTER_MS = 900_000
_ZONES_MS = range(-12 * 3_600_000, 14 * 3_600_000 + 1)


def naive_ms(time: str) -> int | None:
    """Return the milliseconds of an instant time since 1970, as if its zone were UTC.

    :param time: ``yyyyMMddHHmmssSSS``, or without the milliseconds as before Hudi 0.9.
    :returns: ``None`` for a time that is no date, such as that of a bootstrap.
    """
    from datetime import datetime  # a tenth of the import time allowed for the pure core

    try:
        second = datetime.fromisoformat(f"{time[:8]}T{time[8:14]}+00:00")
        return round(second.timestamp()) * 1000 + int(time[14:17] or 0)
    except ValueError:
        return None


def zone_ms(time: str, written_ms: int | None) -> int | None:
    """Return how far the zone of an instant time is ahead of UTC.

    Zones differ by quarters of an hour. What is left is how late the file was written.

    :param written_ms: epoch milliseconds at which its requested file was written.
    :returns: ``None`` if no zone is that far from UTC: the file was copied since.
    """
    named_ms = naive_ms(time)
    if named_ms is None or written_ms is None:
        return None
    ahead_ms = round((named_ms - written_ms) / _QUARTER_MS) * _QUARTER_MS
    return ahead_ms if ahead_ms in _ZONES_MS else None


def moment_ms(time: str, written_ms: int | None) -> int | None:
    """Return the epoch milliseconds of an instant time, by its requested file.

    :returns: the file's time if its zone is not known.
    """
    named_ms, ahead_ms = naive_ms(time), zone_ms(time, written_ms)
    return written_ms if named_ms is None or ahead_ms is None else named_ms - ahead_ms


def from_naive_ms(naive_moment_ms: int) -> str:
    """Return the instant time of which ``naive_ms`` is given."""
    from datetime import UTC, datetime

    seconds, millis = divmod(naive_moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%d%H%M%S}{millis:03}"
