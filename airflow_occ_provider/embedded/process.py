"""Server processes that cannot outlive the process that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

_STOP_TIMEOUT_S = 30.0
_TERM_GRACE_S = 8.0
_POLL_S = 0.05


class EmbeddedError(RuntimeError):
    """An embedded service failed or cannot be started; the message names the remedy."""


class Server:
    """One server process in its own session, watched by a guard process.

    The guard ends the whole session when ``stop`` is called, and also when this process dies: it waits
    for the end of a pipe that only this process holds open.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", __name__, *command],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until ``ready`` returns true.

        :param ready: called repeatedly; must not block for long.
        :raises EmbeddedError: if the server ends or is not ready in time; then it is stopped.
        """
        deadline = time.monotonic() + timeout_s
        while self._guard.poll() is not None or not ready():
            if self._guard.poll() is not None:
                self.stop()
                raise EmbeddedError(f"{self.name} ended while it started:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise EmbeddedError(f"{self.name} was not ready in {timeout_s:.0f} s:\n{self.tail()}")
            time.sleep(_POLL_S)

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """End the server and all processes that it started; safe to repeat."""
        if self._guard.stdin and not self._guard.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        try:
            self._guard.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait(_STOP_TIMEOUT_S)


def _guard(command: Sequence[str]) -> int:
    """Run a command until it or our standard input ends; then end its whole session."""
    signalled = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signalled.set())
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    os.set_blocking(sys.stdin.fileno(), False)
    while child.poll() is None and not (signalled.is_set() or _input_ended()):
        time.sleep(_POLL_S)
    # Listed while the parents exist: a task's Spark driver has its own session.
    started = _descendants_of(child.pid)
    for number, patience_s in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _TERM_GRACE_S)):
        deadline = time.monotonic() + patience_s
        for process in {*started, *_session_of(child.pid)}:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        while time.monotonic() < deadline and (
            child.poll() is None or _session_of(child.pid) or any(map(_is_alive, started))
        ):
            time.sleep(_POLL_S)
    return child.returncode or 0


def _input_ended() -> bool:
    try:
        return os.read(sys.stdin.fileno(), 1) == b""
    except BlockingIOError:
        return False


def _descendants_of(leader: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(leader).children(recursive=True))
    except psutil.Error:
        return []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _session_of(leader: int) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == leader and _is_alive(process):
                processes.append(process)
    return processes


if __name__ == "__main__":
    sys.exit(_guard(sys.argv[1:]))
