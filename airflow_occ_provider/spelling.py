"""Pure: how logs, commands and pages spell owners, times and spans.

A text that one of them shows is found in the others as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

SEPARATOR = " / "
"""Between the ids of an owner: no id of Airflow has it."""
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def spell_owner(path: Iterable[str], *, label: str = "", site: str = "", try_number: int = 0) -> str:
    """Return a DAG, task, run or task run as text, such as ``dag / run / task / 3``.

    >>> spell_owner(("nightly", "manual__1", "load", "3"), try_number=2)
    'nightly / manual__1 / load / 3 (try 2)'

    :param path: the ids from the DAG down; the map index of a mapped task is the last one.
    :param label: the task that acts for the owner, if the owner is its run.
    :param site: the Airflow deployment, if it is named.
    :param try_number: 0 if it is unknown.
    """
    names = SEPARATOR.join((*path, f"by {label}") if label else path)
    details = (f"try {try_number}" if try_number > 0 else "", f"site {site}" if site else "")
    shown = ", ".join(filter(None, details))
    return f"{names} ({shown})" if shown else names


def spell_time(epoch_ms: int) -> str:
    """Return epoch milliseconds as a date and time in UTC, in whole seconds.

    >>> spell_time(1_795_268_400_000)
    '2026-11-21 13:40:00 UTC'
    """
    return f"{datetime.fromtimestamp(epoch_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def spell_span(ms: int) -> str:
    """Return a length of time in its two largest units; a negative one is none.

    >>> spell_span(7_500_000)
    '2 h 5 min'
    """
    rest = max(ms, 0)
    counts: list[tuple[int, str]] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or (counts and len(counts) < 2):
            counts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in counts[:2] if count) or "0 s"


def spell_expiry(margin_ms: int) -> str:
    """Return when something expires, or how long ago it did.

    :param margin_ms: milliseconds until then; negative after that.
    """
    if margin_ms > 0:
        return f"expires in {spell_span(margin_ms)}"
    return f"expired {spell_span(-margin_ms)} ago"
