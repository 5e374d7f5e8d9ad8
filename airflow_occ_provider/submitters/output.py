"""The output of a driver of this host, which never waits for the task's log."""

from __future__ import annotations

import io
import threading
from collections import deque
from dataclasses import dataclass, field

BATCH = 1 << 13  # bytes; beside a job that prints, Airflow logs 100 to 500 kB/s
AHEAD = 1 << 20
LAST = 1 << 15
LONGEST_LINE = 1 << 20
_LOOK_S = 0.2
_HUDI = b"oodie"  # in the names of Hudi's exceptions, which a person looks for

_LEFT_OUT = "{} lines are left out here: the job prints faster than the task's log takes them.\n"


@dataclass(slots=True)
class Output:
    """Lines, added as fast as a job prints and taken as fast as its task logs them.

    Airflow logs some thousand lines a second. A job that prints more would be held back by a full pipe,
    and with it Hudi's loggers, and the attempt would be behind with all that it does between the lines.
    So the oldest lines are skipped once too many wait, apart from those that name Hudi's exceptions.
    """

    _pieces: deque[bytes] = field(default_factory=deque, init=False)
    _size: int = field(default=0, init=False)
    _skipped: int = field(default=0, init=False)
    _may_skip: bool = field(default=False, init=False)
    _has_skipped: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)

    def allow_skipping(self) -> None:
        """Skip lines from now on: the attempt needs none for what it knows of the driver."""
        self._may_skip = True  # without the lock, which a signal handler's interrupted code may hold

    def add(self, lines: bytes) -> None:
        """Add whole lines; wait for room while none may be skipped."""
        with self._changed:
            start = 0
            while start < len(lines):
                end = lines.find(b"\n", start + BATCH) + 1 or len(lines)
                self._pieces.append(lines[start:end])
                start = end
            self._size += len(lines)
            self._changed.notify_all()
            self._skip_to(AHEAD)
            while self._size > AHEAD:
                self._changed.wait(_LOOK_S)
                self._skip_to(AHEAD)

    def close(self) -> None:
        """Skip all but the last lines of a job that has ended, if it printed too much."""
        with self._changed:
            if self._has_skipped:
                self._skip_to(LAST)

    def take(self, wait_s: float) -> list[str]:
        """Return the next lines, a limited number.

        :param wait_s: how long to wait if there are none.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pieces, wait_s)
            lines = [_LEFT_OUT.format(self._skipped)] if self._skipped else []
            pieces, size, self._skipped = [], 0, 0
            while self._pieces and size < BATCH:
                pieces.append(self._pieces.popleft())
                size += len(pieces[-1])
            self._size -= size
            self._changed.notify_all()
        return [*lines, *(line for piece in pieces for line in _lines_of(piece))]

    def _skip_to(self, size: int) -> None:
        """Skip the oldest lines, but never the newest, until no more than a size wait."""
        if self._size <= size or not self._may_skip:
            return
        pieces: deque[bytes] = deque()
        for piece in self._pieces:
            if self._size <= size or _HUDI in piece or piece is self._pieces[-1]:
                pieces.append(piece)
                continue
            self._size -= len(piece)
            self._skipped += piece.count(b"\n")
            self._has_skipped = True
        self._pieces = pieces


def _lines_of(piece: bytes) -> list[str]:
    """Return the lines of a piece; too long ones in parts."""
    text = piece.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return [
        line[start : start + LONGEST_LINE]
        for line in io.StringIO(text, newline="\n")
        for start in range(0, len(line), LONGEST_LINE)
    ]
