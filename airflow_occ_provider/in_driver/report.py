"""Writes what a granted driver reports to its folder.

Object stores cannot append, so there the whole file is written again whenever it changed; of a long
report the first and the last lines are kept. A storage that refuses the file does not stop the job. This
file is shipped with the runner: it runs on Python 3.7.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from airflow_occ_provider.driver.contract import FACTS, FIXED_FACTS, HUDI_FACTS

PERIOD_S = 1.0
BURST = 20
PAUSE_S = 10.0  # after an error
END_S = 60.0
MOST_OF_A_REASON = 2000


class LocalReport:
    """The report of a driver to a folder of this host.

    Each process appends to a file of its own, so nothing is lost with a process that is killed. A line
    may be cut off, since the disk is full: each one begins with a line break too.

    :param folder: path; only its owner reads it.
    """

    line_start = "\n"  # of a line in the file at ``path``; %n would take the brace for its options

    def __init__(self, folder: pathlib.Path) -> None:
        self.path, self._own = str(folder / HUDI_FACTS), folder / FACTS

    def start(self) -> None:
        """Do nothing."""

    def hide(self) -> None:
        """Do nothing: the file is in a private folder."""

    def add(self, line: bytes) -> None:
        """Append a line of this process; the job may have closed all that was open."""
        with contextlib.suppress(OSError):
            facts = os.open(self._own, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            with os.fdopen(facts, "wb", buffering=0) as file:
                file.write(b"\n" + line)

    def close(self, limit_s: float | None = None) -> bool:  # noqa: ARG002
        """Return that all of it is there."""
        return True


class Report:
    """The report of one driver, copied by a thread.

    :param write: writes the whole report.
    :param say: reports a fact: the first error of the storage.
    :param pause_s: the seconds for one more write after a burst of them; 0 if writes cost nothing.
    """

    line_start = ""

    def __init__(
        self,
        write: Callable[[bytes], object],
        say: Callable[..., object],
        *,
        pause_s: float = 0.0,
    ) -> None:
        handle, self.path = tempfile.mkstemp(prefix="airflow_occ_report_")
        self._of_jvm, self._file = os.fdopen(handle, "rb"), os.fstat(handle)
        self._write, self._say = write, say
        self._own: deque[bytes] = deque()
        self._cut = b""
        self._lines = Lines()
        self._allowance = Allowance(pause_s, time.monotonic(), BURST)
        self._closed = threading.Event()
        self._give_up_at = math.inf
        self._is_copied = True
        self._thread = threading.Thread(target=self._copy_until_closed, daemon=True, name="report")

    def start(self) -> None:
        """Start to copy."""
        self._thread.start()

    def hide(self) -> None:
        """Remove the name of the file at ``path``, which the JVM has opened."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # noqa: PTH108

    def add(self, line: bytes) -> None:
        """Add a line of this process."""
        self._own.append(line)

    def close(self, limit_s: float | None = None) -> bool:
        """Copy the rest, and return whether the storage has all of it.

        :param limit_s: how long a storage that does not answer, or refuses, can keep the driver.
        """
        limit_s = END_S if limit_s is None else limit_s
        self.hide()
        self._give_up_at = time.monotonic() + limit_s
        self._closed.set()
        if self._thread.ident is None:
            self.start()
        self._thread.join(limit_s)
        return self._is_copied and not self._thread.is_alive()

    def _copy_until_closed(self) -> None:
        has_failed, pause_s = False, PERIOD_S
        while True:
            is_last = self._closed.wait(pause_s)
            pause_s = PERIOD_S
            self._is_copied = not self._collect() and self._is_copied
            if not self._is_copied and (is_last or self._allowance.takes(time.monotonic())):
                try:
                    self._write(self._lines.content())
                    self._is_copied = True
                except Exception as error:  # noqa: BLE001 - of Java; the job goes on
                    pause_s = PAUSE_S
                    if not has_failed:
                        reason = f"{type(error).__name__}: {error}"[:MOST_OF_A_REASON]
                        self._say("report_refused", reason=reason)
                    has_failed = True
            if is_last:
                if self._is_copied or time.monotonic() + PERIOD_S >= self._give_up_at:
                    with contextlib.suppress(OSError):
                        self._of_jvm.close()
                    return
                time.sleep(PERIOD_S)

    def _collect(self) -> bool:
        """Take the new lines; return whether there are any."""
        *whole, self._cut = (self._cut + self._read_jvm()).split(b"\n")
        lines = [line + b"\n" for line in whole if line]
        while self._own:
            lines.append(self._own.popleft())
        self._lines.add(lines)
        return bool(lines)

    def _read_jvm(self) -> bytes:
        """Return what the JVM has added; nothing if the job has closed the file, or replaced it."""
        try:
            file = os.fstat(self._of_jvm.fileno())
            is_ours = (file.st_dev, file.st_ino) == (self._file.st_dev, self._file.st_ino)
            return self._of_jvm.read() if is_ours else b""
        except OSError:
            return b""


class Allowance:
    """The writes that a report may make: a burst, and then one after each pause.

    So a fact is written at once, unless there were many of late, and a job that reports all the time
    costs no more requests than another one.

    :param pause_s: the seconds for one more write; 0 allows any number.
    """

    def __init__(self, pause_s: float, now_s: float, burst: int) -> None:
        self._pause_s, self._burst = pause_s, burst
        self._writes, self._at_s = float(burst), now_s

    def takes(self, now_s: float) -> bool:
        """Return whether a write may be made now, and count it."""
        if self._pause_s <= 0:
            return True
        gained = (now_s - self._at_s) / self._pause_s
        self._writes, self._at_s = min(self._burst, self._writes + gained), now_s
        if self._writes < 1:
            return False
        self._writes -= 1
        return True


class Lines:
    """The first and the last lines of a report."""

    def __init__(self, most_of_an_end: int = FIXED_FACTS) -> None:
        self._most = most_of_an_end
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._left_out = 0
        self._first_size = self._last_size = 0

    def add(self, lines: Sequence[bytes]) -> None:
        """Add lines; the oldest of the last ones are left out where they are too many."""
        for line in lines:
            if not self._last and self._first_size + len(line) <= self._most:
                self._first.append(line)
                self._first_size += len(line)
                continue
            self._last.append(line)
            self._last_size += len(line)
            while self._last_size > self._most and len(self._last) > 1:
                self._last_size -= len(self._last.popleft())
                self._left_out += 1

    def content(self) -> bytes:
        """Return the report; a fact says how many lines are missing in its middle."""
        left_out = {"fact": "left_out", "lines": self._left_out}
        middle = [f"{json.dumps(left_out)}\n".encode()] if self._left_out else []
        return b"".join([*self._first, *middle, *self._last])
