"""Runs ``spark-submit`` to its end; the driver is not its child."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from airflow_occ_provider.attempts.start_limit import late_start
from airflow_occ_provider.submitters import gate
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.processes import end_session

_LOOK_S = 0.2
_LISTEN_S = 5.0


class Launcher:
    """Runs a command that ends together with the thread that started it."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        identity: str,
        killed: Flag,
        limit: timedelta = timedelta.max,
    ) -> int:
        """Run the command and return its exit code, negative for a signal.

        :param identity: of the task run, which its environment names.
        :param killed: set when it must end.
        :param limit: the longest that it may run; then it is ended, and its lines say so.
        """
        begun_s, late = time.monotonic(), None
        process: Any = subprocess.Popen(
            [sys.executable, "-I", "-S", gate.__file__, str(os.getpid()), *command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        listener = threading.Thread(target=self._listen, args=(process.stdout,), daemon=True)
        listener.start()
        try:
            with suppress(OSError):  # it ended before: its lines show why
                process.stdin.write("\n")
                process.stdin.close()
            while process.poll() is None:
                late = late or late_start(time.monotonic() - begun_s, limit)
                if killed.is_set() or late:
                    end_session(process, identity)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
        except BaseException:
            end_session(process, identity)
            raise
        listener.join(_LISTEN_S)
        if late:
            self._lines.put(f"{late.line}\n")
        return int(process.returncode)

    def said(self) -> list[str]:
        """Return its lines since the last call."""
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def _listen(self, output: Any) -> None:
        with output:
            for line in output:
                self._lines.put(line)
