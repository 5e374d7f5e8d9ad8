"""Runs ``spark-submit`` as a process of this host, and reads its output."""

from __future__ import annotations

import fcntl
import io
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import psutil

from airflow_occ_provider.attempts.site import StartLimit, late_start
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.submitters import gate
from airflow_occ_provider.submitters.processes import DriverProcess, Flag, end_processes, processes_of

BATCH = 1 << 13  # bytes; beside a job that prints, Airflow logs 100 to 500 kB/s
AHEAD = 1 << 20
LAST = 1 << 15
LONGEST_LINE = 1 << 20
_WAKE_S = 0.2
_HUDI = b"oodie"  # in the names of Hudi's exceptions, which a person looks for

_LEFT_OUT = "{} lines are left out here: the job prints faster than the task's log takes them.\n"
_LOOK_S = 0.2
_LISTEN_S = 5.0
_ORPHAN_GRACE_S = 10.0
_LOOKS = 3
_PIPE = 1 << 20  # bytes
_SPARK_MAIN = "org.apache.spark.deploy.SparkSubmit"


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
                self._changed.wait(_WAKE_S)
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


class SubmitCommand(Protocol):
    """One submission, such as ``places.of_task.Launch``."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of ``spark-submit``, one of which is the task run's identity."""

    @property
    def start_limit(self) -> StartLimit:
        """The longest wait, for ``spark-submit`` too."""

    def command(self, conf: Mapping[str, str] | None = None) -> Sequence[str]:
        """Return the command line.

        :param conf: further settings of Spark, which replace those of the task.
        """


class Launcher:
    """Runs one command that ends together with the thread that started it.

    :ivar process: the command, once it was started.
    :ivar exit_code: of the command, once nothing that it started is alive.
    :ivar output: what it prints.
    """

    def __init__(self) -> None:
        self.process: DriverProcess | None = None
        self.exit_code: int | None = None
        self.output = Output()

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        killed: Flag,
        limit: timedelta = timedelta.max,
    ) -> int:
        """Run the command and return its exit code, negative for a signal.

        :param environment: it names the identity of the task run.
        :param killed: set when it must end.
        :param limit: the longest that it may run; then it is ended, and its lines say so.
        """
        begun_s, late = time.monotonic(), ""
        identity = environment[IDENTITY_VARIABLE]
        process: Any = subprocess.Popen(
            [sys.executable, "-I", "-S", gate.__file__, str(os.getpid()), *command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reader = _OutputReader(process.stdout, self.output)
        listener = threading.Thread(target=reader.read, daemon=True, name="driver-log")
        try:
            self.process = DriverProcess.of(process.pid)
            listener.start()
            with suppress(OSError):  # it ended before: its lines show why
                process.stdin.write(b"\n")
                process.stdin.close()
            while process.poll() is None:
                late = late or late_start(time.monotonic() - begun_s, limit)
                if killed.is_set() or late:
                    self._stop(process, identity)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
            if self._end_orphans(process, identity, killed):
                self.exit_code = int(process.returncode)
        except BaseException:
            end_processes(identity, process.pid)
            raise
        finally:
            reader.is_abandoned.set()
        listener.join(_LISTEN_S)
        if late:
            self.output.add(f"{late}\n".encode())
        self.output.close()
        return int(process.returncode)

    def _stop(self, process: Any, identity: str) -> None:
        """End the command and all that it started; nothing may take its lines any more."""
        self.output.allow_skipping()
        end_processes(identity, process.pid)

    def _end_orphans(self, process: Any, identity: str, killed: Flag) -> bool:
        """End the processes that outlive the command; return whether they have ended.

        They keep its output open, in its session or in one of their own. A JVM of Spark among them is
        the driver itself, which a wrapper has started: it is waited for.
        """
        deadline, quiet, was_stopped = time.monotonic() + _ORPHAN_GRACE_S, 0, False
        while quiet < _LOOKS:  # a process shows no environment during its exec
            survivors = processes_of(identity, process.pid)
            quiet = 0 if survivors else quiet + 1
            is_late = time.monotonic() > deadline and not any(map(_is_driver, survivors))
            if survivors and (is_late or killed.is_set()):
                if was_stopped:
                    return False
                was_stopped = True
                pids = ", ".join(str(survivor.pid) for survivor in survivors)
                self._stop(process, identity)
                self.output.add(f"Ended processes that the driver has left behind: {pids}.\n".encode())
            time.sleep(_LOOK_S if survivors else _LOOK_S / 4)
        return True


@dataclass(slots=True)
class _OutputReader:
    """Reads what a process and its children print.

    :param is_abandoned: set when nothing that prints is awaited any more.
    """

    stream: Any
    output: Output
    is_abandoned: threading.Event = field(default_factory=threading.Event)
    _rest: int = field(default=_PIPE, init=False)

    def read(self) -> None:
        """Read it until it is closed or abandoned."""
        waiting, text = select.poll(), b""
        with suppress(OSError):  # of a user who has many pipes
            fcntl.fcntl(self.stream, fcntl.F_SETPIPE_SZ, _PIPE)
        waiting.register(self.stream, select.POLLIN)
        with self.stream:
            while data := self._next_part(waiting):
                text += data
                end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
                if len(text) - end >= LONGEST_LINE:
                    end = len(text)
                self.output.add(text[:end])
                text = text[end:]
            self.output.add(text)

    def _next_part(self, waiting: select.poll) -> bytes:
        """Return what comes next; nothing at its end, or if it is not awaited."""
        while self._rest > 0:
            is_abandoned = self.is_abandoned.is_set()
            if waiting.poll(0 if is_abandoned else _LOOK_S * 1000):
                data = os.read(self.stream.fileno(), _PIPE)
                self._rest -= len(data) if is_abandoned else 0  # the last lines are there already
                return data
            if is_abandoned:
                break
        return b""


def _is_driver(process: psutil.Process) -> bool:
    """Whether a process is the JVM of a driver."""
    try:
        return _SPARK_MAIN in process.cmdline()
    except psutil.Error:
        return False
