"""What tests see of this machine: events that they wait for, and processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

_PATIENCE_S = 900
_Value = TypeVar("_Value")


def until(ready: Callable[[], _Value], what: str, *, pause_s: float = 0.1) -> _Value:
    """Wait until something is there, and return it."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (value := ready()):
        assert time.monotonic() < deadline, f"{what}: not in {_PATIENCE_S} s"
        time.sleep(pause_s)
    return value


class Beside(threading.Thread):
    """A call beside the test, which ends the test's wait if it fails."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self._call = call
        self._result = self._error = None
        self.start()

    def run(self):
        try:
            self._result = self._call()
        except Exception as error:  # noqa: BLE001 - raised by the test
            self._error = error

    def until(self, ready, what):
        until(lambda: ready() or not self.is_alive(), what)
        if self._error:
            raise self._error

    def result(self):
        self.until(lambda: False, "its end")
        return self._result


def file_names(folder):
    """Return the names of all files in a folder, of which others may come and go meanwhile."""
    return {name for _, _, names in os.walk(folder) for name in names}


def processes_in(folder):
    """Return the living processes whose command names a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or ())
        if str(folder) in command and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found
