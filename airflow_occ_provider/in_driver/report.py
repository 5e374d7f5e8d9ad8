"""Copies what a driver reports to a file that its worker reads.

``run_job.py`` runs this file if its payload contains it: where the driver's log reaches the worker late
or not at all. Object stores cannot append, so the whole file is written again whenever it changed; of a
long report the first and the last lines are kept. A storage that refuses the file does not stop the
job. This file runs on machines without the provider: it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

PREFIX = "airflow_occ_provider: "
PERIOD_S = 1.0
PAUSE_S = 10.0  # after an error
END_S = 60.0
MOST_OF_AN_END = 512 * 1024
MOST_OF_A_REASON = 2000
# A file that is being written there is visible: it is replaced by a rename.
SHOWS_UNFINISHED_FILES = ("file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "o3fs")


class Report:
    """The report of one driver, copied by a thread.

    :param write: writes the whole report.
    :param say: reports a fact: the first error of the storage.
    :param prefix: what the lines begin with.
    """

    def __init__(
        self, write: Callable[[bytes], object], say: Callable[..., object], prefix: str = PREFIX
    ) -> None:
        handle, self.path = tempfile.mkstemp(prefix="airflow_occ_report_")
        self._of_jvm = os.fdopen(handle, "rb")
        self._write, self._say = write, say
        self._own: deque[bytes] = deque()
        self._cut = b""
        self._lines = Lines(prefix=prefix)
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
            if not self._is_copied:
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
                    self._of_jvm.close()
                    return
                time.sleep(PERIOD_S)

    def _collect(self) -> bool:
        """Take the new lines; return whether there are any."""
        *whole, self._cut = (self._cut + self._of_jvm.read()).split(b"\n")
        found = [line + b"\n" for line in whole if line]
        while self._own:
            found.append(self._own.popleft())
        self._lines.add(found)
        return bool(found)


class Lines:
    """The first and the last lines of a report."""

    def __init__(self, most_of_an_end: int = MOST_OF_AN_END, prefix: str = PREFIX) -> None:
        self._most, self._prefix = most_of_an_end, prefix
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
        middle = [f"{self._prefix}{json.dumps(left_out)}\n".encode()] if self._left_out else []
        return b"".join([*self._first, *middle, *self._last])


class HadoopFile:
    """A file that is written as a whole, through Hadoop's file system.

    :param jvm: the driver's.
    :param configuration: Hadoop's.
    :param url: of the file.
    """

    def __init__(self, jvm: Any, configuration: Any, url: str) -> None:
        self._jvm, self._configuration = jvm, configuration
        self._url = url
        self._opened: Any = None

    def write(self, content: bytes) -> None:
        """Replace the file; a reader sees the old or the new one."""
        files = self._file_system()
        path = self._jvm.org.apache.hadoop.fs.Path(self._url)
        shows = files.getUri().getScheme() in SHOWS_UNFINISHED_FILES
        written = self._jvm.org.apache.hadoop.fs.Path(f"{self._url}.part") if shows else path
        stream = files.create(written, True)
        try:
            stream.write(content)
        finally:
            stream.close()
        if shows:
            self._rename(written, path)

    def _file_system(self) -> Any:
        """Return a file system of this file alone: the job may close the shared one."""
        if self._opened is None:
            uri = self._jvm.org.apache.hadoop.fs.Path(self._url).toUri()
            self._opened = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(
                uri, self._configuration
            )
            self._opened.setWriteChecksum(False)
        return self._opened

    def _rename(self, written: Any, path: Any) -> None:
        replaces = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        how = self._jvm.java.lang.reflect.Array.newInstance(replaces.getDeclaringClass(), 1)
        how[0] = replaces
        context = self._jvm.org.apache.hadoop.fs.FileContext
        context.getFileContext(path.toUri(), self._configuration).rename(written, path, how)


def opened(jvm: Any, configuration: Any, url: str, say: Callable[..., object]) -> Report:
    """Return the report of this driver, to be copied to a URL."""
    return Report(HadoopFile(jvm, configuration, url).write, say)
