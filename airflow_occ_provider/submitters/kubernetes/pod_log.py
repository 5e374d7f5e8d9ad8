"""Reads the log of a driver's container piece by piece, each line once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

ReadLog = Callable[[str | None], bytes | None]
"""Returns the log with a time before each line, from a time on, which has whole seconds."""

# A node writes nanoseconds, and its own time zone.
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
_OVERLAP = timedelta(seconds=1)  # two streams share the log, so that its times are not quite in order
_FIRST_LINE = timedelta(minutes=1)  # Spark's image and the JVM write at once


class PodLog:
    """The lines of one container's log.

    An API server serves a log from a second on, not from a byte. So the lines of the last two seconds
    are read again, and those that were returned before are left out.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._seen: Counter[bytes] = Counter()
        self.is_whole = True

    def lines(self, read: ReadLog, *, is_over: bool = False, started: str = "") -> list[str] | None:
        """Return the lines since the last call; ``None`` if the log cannot be read now.

        :param started: time of the container's start: a node serves only its last file of a log.
        :param is_over: whether the container has ended, so that an incomplete line is the last one.
        """
        answer = read(self._since.strftime("%Y-%m-%dT%H:%M:%SZ") if self._since else None)
        if answer is None:
            return None
        *complete, rest = answer.split(b"\n")
        if is_over and rest:
            complete.append(rest)
        timed = [(time, line) for line in complete if (time := _time(line))]
        if len(timed) < len(complete):  # a node that has no log says so in the log
            self.is_whole = False
        if timed and self._since is None and started:
            begun = datetime.fromisoformat(started)
            self.is_whole = self.is_whole and timed[0][0] <= begun + _FIRST_LINE
        new = self._new([line for _, line in timed])
        self._remember(timed)
        return [f"{_text(line)}\n" for line in new]

    def _new(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines that were not returned before, and note whether lines were lost."""
        left, new = Counter(self._seen), []
        for line in lines:
            if left[line] > 0:
                left[line] -= 1
            else:
                new.append(line)
        if left.total() > 0:  # the node has begun another file, and serves that one alone
            self.is_whole = False
        return new

    def _remember(self, timed: list[tuple[datetime, bytes]]) -> None:
        if timed:
            self._since = max(time for time, _ in timed) - _OVERLAP
            self._seen = Counter(line for time, line in timed if time >= self._since)


def _time(line: bytes) -> datetime | None:
    """Return the whole second of a line."""
    found = _TIME.match(line)
    if found is None:
        return None
    return datetime.fromisoformat(f"{found[1].decode()}{found[2].decode()}").astimezone(UTC)


def _text(line: bytes) -> str:
    """Return a line without its time."""
    return line.partition(b" ")[2].decode(errors="replace")
