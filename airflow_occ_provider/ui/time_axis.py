"""The layout of the time axis: instants by writer, conflicts and rollbacks.

::

                      07:00      07:10      07:20
    nightly / load    [======]       [- - - - - -    pending: open to the right
    nightly / fix         [====x]    ^               rolled back or dead: a cross
    No signature               |     [=====]         arrows: conflicts and rollbacks
    Rollbacks                  <>
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.reading.table_state import Bar, Edge
from airflow_occ_provider.spelling import spell_span, spell_time
from airflow_occ_provider.ui.drawing import BAR, LANE, LEFT, RIGHT, TOP, Arrow, AxisRow, Mark, TimeAxis
from airflow_occ_provider.ui.links import Party, Viewer, of_signature, task_name
from airflow_occ_provider.ui.words import clock, shorten, state

MOST_LANES = 60
MOST_BARS = 500
_LEAST = 3.0  # width of a short bar
_LABEL = 34
_MINUTE = 60_000
_STEPS = tuple(minutes * _MINUTE for minutes in (2, 10, 60, 180))
_MOST_TICKS = 9
_UNSIGNED = ("No signature", "Writes that are not signed, are not known to be yet, or were rolled back")
_SERVICES = ("Table services", "Compaction, log compaction and clustering")
_ROLLBACKS = ("Rollbacks", "The moments at which a write was rolled back")


def time_axis(
    bars: Iterable[Bar], edges: Iterable[Edge], until_ms: int, minutes: int, viewer: Viewer
) -> TimeAxis:
    """Return the time axis of the instants that ended in a range or are pending.

    :param until_ms: epoch milliseconds at which the table was read.
    :param minutes: length of the range that ends then.
    """
    scale = _Scale(until_ms - minutes * _MINUTE, until_ms)
    inside = [bar for bar in bars if _end_ms(bar, until_ms) >= scale.since_ms]
    newest = sorted(inside, key=lambda bar: (_end_ms(bar, until_ms), bar.instant), reverse=True)
    grouped: dict[tuple[int, str, str], list[Bar]] = {}
    for bar in newest[:MOST_BARS]:
        grouped.setdefault(_row(bar, viewer), []).append(bar)
    lost_ms = Counter[tuple[int, str, str]]()
    for bar in inside:
        lost_ms[_row(bar, viewer)] += bar.lost_since(scale.since_ms)
    lanes, free = {}, MOST_LANES
    for key, group in grouped.items():  # the row with the newest instant first
        lanes[key] = scale.lanes(group)[:free]
        free -= len(lanes[key])
    rows, y = [], TOP
    for key in sorted(key for key, filled in lanes.items() if filled):
        rows.append(_filled(key, lanes[key], y, scale, viewer, lost_ms=lost_ms[key]))
        y += rows[-1].height
    shown = sum(len(row.marks) for row in rows)
    arrows = tuple(_arrows(edges, rows, y))
    if any(arrow.diamond for arrow in arrows):
        rows.append(AxisRow(*_ROLLBACKS, y, LANE, ()))
    ticks = scale.ticks()
    return TimeAxis(scale.since_ms, until_ms, tuple(rows), arrows, ticks, len(inside) - shown)


@dataclass(frozen=True, slots=True)
class _Scale:
    since_ms: int
    until_ms: int

    def x(self, at_ms: int) -> float:
        part = (at_ms - self.since_ms) / (self.until_ms - self.since_ms)
        return round(LEFT + min(max(part, 0), 1) * (RIGHT - LEFT), 1)

    def reach(self, bar: Bar) -> tuple[float, float]:
        begin = self.x(bar.begun_ms)
        return begin, max(self.x(_end_ms(bar, self.until_ms)), begin + _LEAST)

    def lanes(self, group: Iterable[Bar]) -> list[list[Bar]]:
        """Return the bars in as few lanes as they need not to overlap."""
        lanes: list[list[Bar]] = []
        for bar in sorted(group, key=lambda bar: (bar.begun_ms, bar.instant)):
            begin, _ = self.reach(bar)
            free = (lane for lane in lanes if self.reach(lane[-1])[1] < begin)
            lane = next(free, None)
            if lane is None:
                lanes.append(lane := [])
            lane.append(bar)
        return lanes

    def ticks(self) -> tuple[tuple[float, str], ...]:
        length = self.until_ms - self.since_ms
        step = next((step for step in _STEPS if length / step <= _MOST_TICKS), _STEPS[-1])
        first = -(-self.since_ms // step) * step
        return tuple((self.x(at), clock(at)) for at in range(first, self.until_ms + 1, step))


def _end_ms(bar: Bar, until_ms: int) -> int:
    return until_ms if bar.ended_ms is None else bar.ended_ms


def _row(bar: Bar, viewer: Viewer) -> tuple[int, str, str]:
    """Return the place, the label and the title of a bar's row."""
    if bar.is_service:
        return 2, *_SERVICES
    if bar.writer is None:
        return 1, *_UNSIGNED
    name = task_name(bar.writer, viewer)
    return 0, name, name


def _filled(
    key: tuple[int, str, str],
    lanes: Sequence[Sequence[Bar]],
    y: int,
    scale: _Scale,
    viewer: Viewer,
    *,
    lost_ms: int,
) -> AxisRow:
    _, label, title = key
    marks = tuple(
        _mark(bar, y + lane * LANE + (LANE - BAR) // 2, scale, viewer)
        for lane, group in enumerate(lanes)
        for bar in group
    )
    wasted = spell_span(lost_ms) if lost_ms else ""
    return AxisRow(shorten(label, _LABEL), title, y, len(lanes) * LANE, marks, wasted)


def _mark(bar: Bar, y: int, scale: _Scale, viewer: Viewer) -> Mark:
    begin, end = scale.reach(bar)
    cross = None
    if bar.fate is Fate.DEAD:
        cross = scale.x(bar.seen_ms or bar.begun_ms)
    elif bar.fate is Fate.ROLLED_BACK:
        cross = end
    kind = f"{bar.fate} service" if bar.is_service else str(bar.fate)
    writer = of_signature(bar.writer, viewer) if bar.writer else Party("")
    title = _title(bar, scale.until_ms, writer.name)
    return Mark(bar.instant, kind, begin, end, y, bar.ended_ms is None, cross, title, writer.href)


def _title(bar: Bar, until_ms: int, writer: str) -> str:
    parts = [f"{bar.instant} {bar.kind}: {state(bar.fate)}", f"requested {spell_time(bar.begun_ms)}"]
    ended = f"ended {spell_time(bar.ended_ms)}" if bar.ended_ms else "pending"
    parts.append(f"{ended} after {spell_span(_end_ms(bar, until_ms) - bar.begun_ms)}")
    if bar.seen_ms:
        parts.append(f"last heartbeat {spell_time(bar.seen_ms)}")
    if writer:
        parts.append(writer)
    return "; ".join(parts)


def _arrows(edges: Iterable[Edge], rows: Iterable[AxisRow], bottom: int) -> Iterator[Arrow]:
    """Yield the arrows between the marks that are shown."""
    marks = {mark.instant: mark for row in rows for mark in row.marks}
    for edge in sorted(set(edges), key=lambda edge: (edge.target, edge.source, edge.kind)):
        source, target = marks.get(edge.source), marks.get(edge.target)
        if target and edge.kind == "rollback":
            yield _rollback(edge, target, bottom)
        elif target and source and source.y != target.y:
            yield _conflict(edge, source, target)


def _rollback(edge: Edge, target: Mark, bottom: int) -> Arrow:
    x, y = target.end, bottom + LANE // 2
    diamond = f"M{x:.1f} {y - 5}l5 5l-5 5l-5 -5Z"
    title = f"{edge.source} rolled back {edge.target}"
    return Arrow("rollback", _vertical(x, y - 5, target.y + BAR), title, diamond)


def _conflict(edge: Edge, source: Mark, target: Mark) -> Arrow:
    down = source.y < target.y
    both = max(source.begin, target.begin) + (6 if down else 16)
    x = max(min(both, source.end, target.end), source.begin, target.begin)
    ends = (source.y + BAR, target.y) if down else (source.y, target.y + BAR)
    certain = edge.kind == "conflict"
    title = f"{edge.target} {'will' if certain else 'may'} lose to {edge.source}"
    return Arrow("conflict" if certain else "possible", _vertical(x, *ends), title)


def _vertical(x: float, begin: int, end: int) -> str:
    back = 5 if end < begin else -5
    return f"M{x:.1f} {begin}V{end}m-4 {back}l4 {-back}l4 {back}"
