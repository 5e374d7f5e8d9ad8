"""``spark-submit`` in client mode, with a gated driver process on this host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from airflow_occ_provider.attempts.log.facts import Entry, Fact
from airflow_occ_provider.attempts.submitter import (
    Ended,
    Extensions,
    Handle,
    Running,
    Unseen,
)
from airflow_occ_provider.submitters import gate
from airflow_occ_provider.submitters.driver_process import DriverProcess, ProcessTable
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.folder_driver import Offer
from airflow_occ_provider.submitters.output import LONGEST_LINE, Output
from airflow_occ_provider.submitters.private_folder import PrivateFolder
from airflow_occ_provider.submitters.processes import (
    end_session,
    end_survivors,
    marked,
    session_of,
)

_ORPHAN_GRACE_S = 10.0
_LOOK_S = 0.5
_GATE_S = 0.1  # between two looks for a driver that waits
_LOOKS = 3
_PIPE = 1 << 20  # bytes; fewer reads, each of which waits for its turn beside the task's threads
_SPARK_MAIN = "org.apache.spark.deploy.SparkSubmit"


@dataclass
class SparkSubmit:
    """Run one ``spark-submit`` command as a driver of this host.

    :param command: the command.
    :param environment: of the driver; ``None`` for that of this process.
    :param offer: the driver's work, in a private folder of this host; ``None`` to follow and end drivers
        of earlier processes.
    :param killed: set when the task was asked to stop.
    """

    name = "spark_submit"
    outlives_task = False

    command: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    offer: Offer | None = None
    killed: Flag = field(default_factory=Flag)
    _folder: PrivateFolder | None = field(init=False)
    _extensions: Extensions | None = field(default=None, init=False)
    _process: Any = field(default=None, init=False)
    _is_gone: bool = field(default=False, init=False)
    _is_abandoned: threading.Event = field(default_factory=threading.Event, init=False)
    _unread: int | None = field(default=None, init=False)
    _output: Output = field(default_factory=Output, init=False)

    def __post_init__(self) -> None:
        self._folder = PrivateFolder(self.offer) if self.offer else None

    def feed(self, extensions: Extensions) -> None:
        """Take the extensions of the driver's lease; see ``Submitter``."""
        self._extensions = extensions

    def submit(self, key: str, started: Callable[[Handle], None]) -> Handle:
        """Start the driver at a gate, record it, and open the gate."""
        process: Any = subprocess.Popen(
            [sys.executable, "-I", "-S", gate.__file__, str(os.getpid()), *self.command],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._process = process
        try:
            handle = DriverProcess.of(process.pid).handle(key)
            started(handle)
        except BaseException:
            process.stdin.close()
            end_session(process, key)
            process.stdout.close()
            raise
        threading.Thread(target=self._read, daemon=True, name="driver-log").start()
        orphans = threading.Thread(
            target=self._end_orphans, args=(key,), daemon=True, name="driver-orphans"
        )
        orphans.start()
        if self.killed.is_set():
            end_session(process, key)
        with contextlib.suppress(OSError):  # it ended before: its log shows why
            process.stdin.write(b"\n")
            process.stdin.close()
        return handle

    def find(self, key: str) -> Handle | None:
        """Return a living process of this host that carries the task run's identity."""
        for left in reversed(range(_LOOKS)):  # a process shows no environment during its exec
            for process in marked(key):
                return DriverProcess.of(process.pid).handle(key)
            time.sleep(_LOOK_S / 10 if left else 0)
        return None

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver, or anything that it started, is alive on this host."""
        driver = DriverProcess.of_handle(handle)
        if self._process is not None and self._process.pid == driver.pid:
            code = self._process.poll()
            left = code is None or (not self._is_gone and marked(handle.facts["key"]))
            return Running() if left else Ended(code)
        if not ProcessTable.here().proves(driver.table):
            return Unseen(f"{handle} is none of this host's processes")
        return Running() if driver.has_its_id() and session_of(driver.pid) else Ended(None)

    def read(self, handle: Handle, wait_s: float) -> list[Entry] | None:
        """Return the facts and lines since the last call, ``None`` after the log's end.

        The log ends when the driver has ended and all its lines were returned. The facts come first:
        what the runner reports before it starts the job says how the job's lines are read.
        """
        if self.killed.is_set():  # the kill came while the driver was being started
            self.end(handle)
        lines = self._output.take(wait_s if self._is_granted else min(wait_s, _GATE_S))
        entries = [*self._new_facts(), *(lines or ())]
        if lines is not None or entries:
            return entries
        if self._folder:
            self._folder.close()
        return None

    @property
    def _is_granted(self) -> bool:
        return self._folder is None or self._folder.is_granted

    def _new_facts(self) -> list[Fact]:
        facts = self._folder.new(self._extensions) if self._folder else []
        # A driver whose loggers do not report is known by its lines.
        if any(fact["fact"] == "protected" and fact.get("followed") is True for fact in facts):
            self._output.allow_skipping()
        return facts

    def end(self, handle: Handle) -> None:
        """End the driver and all that it started, also in other sessions."""
        driver, key = DriverProcess.of_handle(handle), handle.facts.get("key", "")
        if self._process is not None and self._process.pid == driver.pid:
            end_session(self._process, key)
            self._is_gone = self._process.poll() is not None and not marked(key)
        elif ProcessTable.here().proves(driver.table):
            end_survivors(key, driver)

    def _read(self) -> None:
        """Read the log until it is closed, or nothing that writes to it is awaited any more."""
        process, waiting, text = self._process, select.poll(), b""
        with contextlib.suppress(OSError):  # of a user who has many pipes
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE)
        waiting.register(process.stdout, select.POLLIN)
        while data := self._next_part(process.stdout.fileno(), waiting):
            text += data
            end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
            if len(text) - end >= LONGEST_LINE:
                end = len(text)
            self._output.add(text[:end])
            text = text[end:]
        self._output.add(text)
        process.stdout.close()
        process.wait()
        self._output.close()

    def _next_part(self, log: int, waiting: select.poll) -> bytes:
        """Return what comes next in the log; nothing at its end, or if it is not awaited."""
        while not self._is_abandoned.is_set():
            if waiting.poll(_LOOK_S * 1000):
                return os.read(log, _PIPE)
        if self._unread is None:  # the driver's last lines
            self._unread = int.from_bytes(fcntl.ioctl(log, termios.FIONREAD, bytes(4)), sys.byteorder)
        data = os.read(log, min(self._unread, _PIPE)) if self._unread else b""
        self._unread -= len(data)
        return data

    def _end_orphans(self, key: str) -> None:
        """End the processes that outlive the driver, and stop waiting for what they write.

        They keep the log open, in its session or in one of their own. A JVM of Spark among them is the
        driver itself, which a wrapper has started: it is waited for.
        """
        process, quiet = self._process, 0
        process.wait()
        deadline = time.monotonic() + _ORPHAN_GRACE_S
        while quiet < _LOOKS:  # a process shows no environment during its exec
            survivors = _survivors(process.pid, key)
            quiet = 0 if survivors else quiet + 1
            if survivors and time.monotonic() > deadline and not any(map(_is_driver, survivors)):
                pids = ", ".join(str(survivor.pid) for survivor in survivors)
                self._output.add(f"Ending processes that the driver has left behind: {pids}.\n".encode())
                end_session(process, key)
                break
            time.sleep(_LOOK_S if survivors else _LOOK_S / 10)
        self._is_abandoned.set()


def _survivors(leader: int, key: str) -> list[psutil.Process]:
    """Return the living processes of a driver's session, and those marked as its own elsewhere."""
    return list({*session_of(leader), *marked(key)})


def _is_driver(process: psutil.Process) -> bool:
    """Whether a process is the JVM of a driver."""
    try:
        return _SPARK_MAIN in process.cmdline()
    except psutil.Error:
        return False
