"""What the drawing of a time axis consists of, in its coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_occ_provider.spelling import spell_time
from airflow_occ_provider.ui.words import count

WIDTH, LEFT, RIGHT = 1000, 230, 890
TOP, LANE, BAR = 28, 22, 12


@dataclass(frozen=True, slots=True)
class Mark:
    """A bar in its place.

    :param cross: the middle of its cross; ``None`` without one.
    """

    instant: str
    kind: str
    begin: float
    end: float
    y: int
    is_open: bool
    cross: float | None
    title: str
    href: str = ""

    @property
    def path(self) -> str:
        """The outline; without a right side while the instant is pending."""
        begin, end, bottom = f"{self.begin:.1f}", f"{self.end:.1f}", self.y + BAR
        if self.is_open:
            return f"M{end} {self.y}H{begin}V{bottom}H{end}"
        return f"M{begin} {self.y}H{end}V{bottom}H{begin}Z"

    @property
    def cross_path(self) -> str:
        """Its cross; empty without one."""
        if self.cross is None:
            return ""
        begin, end = f"{self.cross - 5:.1f}", f"{self.cross + 5:.1f}"
        top, bottom = self.y + 1, self.y + BAR - 1
        return f"M{begin} {top}L{end} {bottom}M{begin} {bottom}L{end} {top}"


@dataclass(frozen=True, slots=True)
class AxisRow:
    """The instants of one writer.

    :param wasted: the time of its writes in the range that came to nothing, also of those that are left
        out; empty if there is none.
    """

    label: str
    title: str
    y: int
    height: int
    marks: tuple[Mark, ...]
    wasted: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A conflict or a rollback, from its cause to the write that loses.

    :param diamond: the mark of the rollback; empty for a conflict.
    """

    kind: str
    path: str
    title: str
    diamond: str = ""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Everything that the drawing shows.

    :param ticks: their places and texts.
    :param left_out: how many instants of the range it does not show.
    """

    since_ms: int
    until_ms: int
    rows: tuple[AxisRow, ...]
    arrows: tuple[Arrow, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int = 0

    @property
    def bottom(self) -> int:
        """Where the rows end."""
        return max((row.y + row.height for row in self.rows), default=TOP)

    @property
    def description(self) -> str:
        """What is shown, in a sentence."""
        shown = sum(len(row.marks) for row in self.rows)
        counted = f"{count(shown, 'instant')} in {count(len(self.rows), 'row')}"
        return f"{counted}, {spell_time(self.since_ms)} to {spell_time(self.until_ms)}"
