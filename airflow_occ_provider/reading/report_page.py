"""Reports of tables as one page that needs no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_occ_provider.hudi.report.losses import Cause
from airflow_occ_provider.reading.report_text import REASONS
from airflow_occ_provider.spelling import spell_span, spell_time

_WIDTH, _HEIGHT = 720, 150
_MOST_DAYS = 120
_MOST_LOSSES = 200
_NAMES = {cause.value: reason for cause, reason in REASONS.items()}


class Block(NamedTuple):
    """The driver time that one cause took on one day, in its place of the drawing."""

    cause: str
    x: float
    y: float
    width: float
    height: float
    title: str


def render(described: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of some tables' reports.

    :param described: as of ``describe_report``.
    """
    environment = Environment(
        loader=PackageLoader("airflow_occ_provider.reading", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(span=spell_span, moment=spell_time)
    return environment.get_template("report.html").render(
        reports=[{**report, "chart": chart(report)} for report in described],
        reasons=_NAMES,
        named=lambda partitions: ", ".join(name or "/" for name in partitions),
        most=_MOST_LOSSES,
        width=_WIDTH,
        height=_HEIGHT,
    )


def chart(described: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the drawing of the lost time of each day; ``None`` if nothing was lost.

    Of a longer time only the last 120 days are drawn.
    """
    losses = {day["day"]: day["causes"] for day in described["days"]}
    if not losses:
        return None
    last = max(losses)
    first = max(min(losses), _plus(last, 1 - _MOST_DAYS))
    days = [_plus(first, number) for number in range(_between(first, last) + 1)]
    most_ms = max(sum(sum_["driver_ms"] for sum_ in losses.get(day, {}).values()) for day in days)
    slot = _WIDTH / max(len(days), 7)
    blocks = list[Block]()
    for number, day in enumerate(days):
        bottom = float(_HEIGHT)
        for cause in (cause.value for cause in Cause):
            sum_ = losses.get(day, {}).get(cause)
            if sum_:
                height = max(2.0, sum_["driver_ms"] / max(most_ms, 1) * (_HEIGHT - 2))
                bottom -= height
                span = spell_span(sum_["driver_ms"])
                title = f"{day}: {sum_['writes']} {_NAMES[cause]}, {span}"
                blocks.append(Block(cause, number * slot + 1, bottom, slot - 2, height, title))
    return {"blocks": blocks, "first": days[0], "last": days[-1], "most": spell_span(most_ms)}


def _plus(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days)).isoformat()


def _between(first: str, last: str) -> int:
    return (date.fromisoformat(last) - date.fromisoformat(first)).days
