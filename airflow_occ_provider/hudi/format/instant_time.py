"""Instant times as moments: ``yyyyMMddHHmmssSSS`` in the zone of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, tzinfo

_MILLIS = 17
_SECONDS = 14
_QUARTER_MS = 900_000


def to_datetime(time: str, zone: tzinfo | None = None) -> datetime | None:
    """Return the aware datetime of an instant time; ``None`` if it names no moment.

    A time in seconds, as Hudi wrote before 0.10, means the last millisecond of that second. Digits
    after the milliseconds are a suffix of the metadata table's services (Hudi 1.2.0,
    ``HoodieInstantTimeGenerator.fixInstantTimeCompatibility``). Hudi's special times, such as
    ``00000000000000``, name no moment.

    :param time: requested or completion time of an instant.
    :param zone: the zone in which it was written; by default the local zone of this process.
    """
    from datetime import datetime  # a tenth of the import time allowed for the pure core

    text = f"{time}999" if len(time) == _SECONDS else time
    if len(text) < _MILLIS or not text.isdecimal():
        return None
    try:
        moment = datetime.fromisoformat(f"{text[:8]}T{text[8:14]}.{text[14:17]}")
        return moment.replace(tzinfo=zone) if zone else moment.astimezone()
    except (ValueError, OverflowError):
        return None


def to_epoch_ms(time: str, zone: tzinfo | None = None) -> int | None:
    """Return an instant time in epoch milliseconds; ``None`` if it is no moment.

    :param time: requested or completion time of an instant.
    :param zone: the zone in which it was written; by default the local zone of this process.
    """
    moment = to_datetime(time, zone)
    return None if moment is None else round(moment.timestamp() * 1000)


def from_epoch_ms(moment_ms: int, zone: tzinfo | None = None) -> str:
    """Return a moment as an instant time.

    :param moment_ms: epoch milliseconds.
    :param zone: the zone of the result; by default the local zone of this process.
    """
    from datetime import datetime

    seconds, millis = divmod(moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, zone):%Y%m%d%H%M%S}{millis:03}"


def epoch_ms_writer(zone: tzinfo | None = None) -> Callable[[int], str]:
    """Return a ``from_epoch_ms`` with one zone lookup per quarter of an hour.

    Zones differ and change their offset by whole quarters of an hour.

    :param zone: the zone of the results; by default the local zone of this process.
    """
    quarters: dict[int, tuple[str, int]] = {}

    def write(moment_ms: int) -> str:
        quarter, rest = divmod(moment_ms, _QUARTER_MS)
        if quarter not in quarters:
            start = from_epoch_ms(quarter * _QUARTER_MS, zone)
            quarters[quarter] = start[:10], int(start[10:12]) * 100_000
        hour, minutes = quarters[quarter]
        minute, millis = divmod(rest, 60_000)
        return f"{hour}{minutes + minute * 100_000 + millis:07}"

    return write
