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
    """Return the moment that an instant time names, aware; ``None`` where it names none.

    A time of seconds, of Hudi before 0.10, stands for the last millisecond in it, and what follows
    the milliseconds is a mark of the metadata table's own services (Hudi 1.2.0,
    ``HoodieInstantTimeGenerator.fixInstantTimeCompatibility``). Hudi's special times, such as
    ``00000000000000``, name no moment.

    :param time: requested or completion time of an instant.
    :param zone: the zone it was written in; by default the local zone of this process.
    """
    from datetime import datetime  # a tenth of what importing the pure core may cost

    text = f"{time}999" if len(time) == _SECONDS else time
    if len(text) < _MILLIS or not text.isdecimal():
        return None
    try:
        moment = datetime.fromisoformat(f"{text[:8]}T{text[8:14]}.{text[14:17]}")
        return moment.replace(tzinfo=zone) if zone else moment.astimezone()
    except (ValueError, OverflowError):
        return None


def to_epoch_ms(time: str, zone: tzinfo | None = None) -> int | None:
    """Return the epoch milliseconds of an instant time; ``None`` where it names no moment.

    :param time: requested or completion time of an instant.
    :param zone: the zone it was written in; by default the local zone of this process.
    """
    moment = to_datetime(time, zone)
    return None if moment is None else round(moment.timestamp() * 1000)


def from_epoch_ms(moment_ms: int, zone: tzinfo | None = None) -> str:
    """Write a moment as an instant time.

    :param moment_ms: epoch milliseconds.
    :param zone: the zone to write it in; by default the local zone of this process.
    """
    from datetime import datetime

    seconds, millis = divmod(moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, zone):%Y%m%d%H%M%S}{millis:03}"


def epoch_ms_writer(zone: tzinfo | None = None) -> Callable[[int], str]:
    """Return ``from_epoch_ms`` for many moments, which asks the zone once per quarter of an hour.

    Zones change their offset, and differ from each other, by whole quarters.

    :param zone: the zone to write in; by default the local zone of this process.
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
