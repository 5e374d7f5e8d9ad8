"""The readers of tables in a process of their own.

A process runs the Python of one thread at a time: reads of many tables inside Airflow's API server would
keep its other requests waiting.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeAlias

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import OccError, StorageStalledError
from airflow_occ_provider.hudi.doctor.finding import Finding
from airflow_occ_provider.reading.table_state import TableState
from airflow_occ_provider.ui.known_tables import TableSource
from airflow_occ_provider.ui.table_readers import KEPT_S, LocalReaders

_CALL_S = 600.0
_CHECK_S = 1.0
_NICE = 5
_ENDED = (EOFError, OSError)
_Call: TypeAlias = tuple[str, TableSource, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Started:
    process: subprocess.Popen[bytes]
    free: SimpleQueue[Connection]


class ReaderProcess:
    """Reads tables in a process that runs while it is needed.

    :param calls: how many threads call it at once, at most.
    :param idle_s: seconds without a call after which it ends.
    """

    def __init__(self, calls: int, idle_s: float = KEPT_S) -> None:
        self._calls, self._idle_s = calls, idle_s
        self._lock = threading.Lock()
        self._now: _Started | None = None

    def state(self, source: TableSource, *, with_verdicts: bool) -> TableState:
        """Return a table, without its queue."""
        state: TableState = self._call("state", source, with_verdicts=with_verdicts)
        return state

    def findings(self, source: TableSource) -> tuple[Finding, ...]:
        """Return the doctor's findings about a table."""
        findings: tuple[Finding, ...] = self._call("findings", source)
        return findings

    def close(self) -> None:
        """End the process; a later call starts it anew."""
        if self._now:
            self._end(self._now)

    def _call(self, name: str, source: TableSource, **options: Any) -> Any:
        try:  # it was killed, or ended since it was not needed
            value, error = bounded(partial(self._answer, (name, source, options)), _ENDED, tries=2)
        except _ENDED as ended:
            raise RuntimeError(f"The process that reads {source.path} ended twice") from ended
        if error:
            raise error
        return value

    def _answer(self, call: _Call) -> tuple[Any, BaseException | None]:
        started = self._started()
        pipe = started.free.get()
        try:
            pipe.send(call)
            if not pipe.poll(_CALL_S):
                text = f"A read of {call[1].path} took longer than {_CALL_S:.0f} s"
                raise StorageStalledError(text)
            answer: tuple[Any, BaseException | None] = pipe.recv()
        except BaseException:
            self._end(started)
            raise
        finally:
            started.free.put(pipe)  # of an ended process too: its other callers see that it ended
        return answer

    def _started(self) -> _Started:
        with self._lock:
            self._now = self._now or _start(self._calls, self._idle_s)
            return self._now

    def _end(self, started: _Started) -> None:
        with self._lock:
            if self._now is started:
                self._now = None
        started.process.kill()
        started.process.wait()


def _start(calls: int, idle_s: float) -> _Started:
    pipes = [Pipe() for _ in range(calls)]
    descriptors = [pipe.fileno() for _, pipe in pipes]
    command = [sys.executable, "-m", __name__, str(os.getpid()), str(idle_s), *map(str, descriptors)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)
    free = SimpleQueue[Connection]()
    for ours, their in pipes:
        their.close()
        free.put(ours)
    return _Started(process, free)


class _Answering(threading.Thread):
    """Answers the calls that come through a pipe. The process ends with the pipe."""

    def __init__(self, pipe: Connection, readers: LocalReaders, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._pipe, self._readers, self._ended = pipe, readers, ended
        self.idle_since_s = time.monotonic()

    def run(self) -> None:
        try:
            while True:
                name, source, options = self._pipe.recv()
                self.idle_since_s = inf
                self._pipe.send_bytes(self._answer(name, source, options))
                self.idle_since_s = time.monotonic()
        except _ENDED:
            pass  # the process that calls has ended
        finally:
            self._ended.set()

    def _answer(self, name: str, source: TableSource, options: dict[str, Any]) -> bytes:
        try:
            return pickle.dumps((getattr(self._readers, name)(source, **options), None))
        except OccError as error:
            return pickle.dumps((None, error))
        except BaseException as error:  # noqa: BLE001 - of a library, where native code may panic
            return pickle.dumps((None, RuntimeError(str(error))))  # not each of theirs can be copied


def main(arguments: Sequence[str]) -> None:
    """Answer the calls of the process that started this one, while it calls.

    :param arguments: the id of that process, seconds without a call after which this one ends, and the
        file descriptors of the pipes.
    """
    os.nice(_NICE)  # Airflow's own requests come first
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the process that started it
    parent, idle_s = int(arguments[0]), float(arguments[1])
    readers, ended = LocalReaders(), threading.Event()
    threads = [_Answering(Connection(int(descriptor)), readers, ended) for descriptor in arguments[2:]]
    for thread in threads:
        thread.start()
    while os.getppid() == parent and not ended.wait(_CHECK_S):
        if time.monotonic() - max(thread.idle_since_s for thread in threads) >= idle_s:
            break
    signal.raise_signal(signal.SIGKILL)  # a read that hangs would keep it from ending


if __name__ == "__main__":
    main(sys.argv[1:])
