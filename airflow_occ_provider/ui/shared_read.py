"""A value that all requests of a process read together, at most once per period."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from airflow_occ_provider.errors import (
    ConfigurationError,
    LockUnreachableError,
    NotHudiTableError,
    StorageDeniedError,
    StorageStalledError,
)

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
# Of an error's own text, the log has the rest: endpoints, connections and paths are not for all users.
_PROBLEMS: tuple[tuple[type[Exception], str], ...] = (
    (StorageStalledError, "The storage does not answer in time."),
    (StorageDeniedError, "The storage refuses the credentials of the API server."),
    (NotHudiTableError, "There is no Hudi table at the path."),
    (LockUnreachableError, "The lock service does not answer in time."),
    (ConfigurationError, "A connection is missing or wrong. The API server's log names it."),
)
_OTHER_PROBLEM = "The read failed. The API server's log says why."
_MOST_WAIT_S = 300.0
_MOST_DOUBLINGS = 10


@dataclass(frozen=True, slots=True)
class SharedValue(Generic[_T]):
    """The last value of a shared read, with its age.

    :param value: ``None`` before the first one.
    :param age_s: seconds since it was read; ``None`` before that.
    :param problem: why there is no newer one, as a sentence without internals; empty without a problem.
    :param running_s: seconds since a newer one was asked for; ``None`` if none is being read.
    """

    value: _T | None = None
    age_s: float | None = None
    problem: str = ""
    running_s: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether a newer value is being read."""
        return self.running_s is not None


class SharedRead(Generic[_T]):
    """A read that one thread does for all callers; its failure counts as an answer.

    :param read: does it; never called by two threads at a time.
    :param period_s: seconds after a read in which no other one starts; they double with each further
        stall of the storage, of which each may leave a thread behind.
    :param pool: where it runs.
    :param close: ends what the reads keep open.
    """

    def __init__(
        self,
        read: Callable[[], _T],
        period_s: float,
        pool: Executor,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._read, self._period_s, self._pool, self._close = read, period_s, pool, close
        self._lock = threading.Lock()
        self._running: Future[None] | None = None
        self._asked_s = self._begun_s = self._ended_s = float("-inf")
        self._stalls = 0
        self._value: _T | None = None
        self._read_s = float("-inf")
        self._problem = ""

    async def latest(self, until_s: float) -> SharedValue[_T]:
        """Return the value of this period, or the last one if the read takes too long.

        :param until_s: time of the monotonic clock until which to wait; the read goes on after it.
        """
        running = self.start()
        if running:
            left_s = max(until_s - time.monotonic(), 0)
            await asyncio.wait([asyncio.wrap_future(running)], timeout=left_s)
        return self.last()

    def start(self) -> Future[None] | None:
        """Start the read if it is due; return the one that runs, if any."""
        with self._lock:
            self._asked_s = time.monotonic()
            if self._running is None and self._asked_s - self._ended_s >= self._wait_s():
                self._begun_s = self._asked_s
                self._running = self._pool.submit(self._run)
            return self._running

    def is_unused(self, for_s: float) -> bool:
        """Return whether it does not run, and was not asked for in some seconds."""
        with self._lock:
            return self._running is None and time.monotonic() - self._asked_s >= for_s

    def close(self) -> None:
        """End what the reads keep open, in the pool; it must not be used any more."""
        if self._close:
            self._pool.submit(self._close)

    def _wait_s(self) -> float:
        doubled_s = self._period_s * 2.0 ** min(max(self._stalls - 1, 0), _MOST_DOUBLINGS)
        return max(self._period_s, min(doubled_s, _MOST_WAIT_S))

    def _run(self) -> None:
        problem, value, stalls, begun_s = _OTHER_PROBLEM, None, 0, time.monotonic()
        try:
            value, problem = self._read(), ""
        except BaseException as error:  # noqa: BLE001 - shown by the page; a native library may panic
            problem = problem_of(error)
            stalls = self._stalls + 1 if isinstance(error, StorageStalledError) else 0
            is_news = problem != self._problem
            _log.log(
                logging.WARNING if is_news else logging.DEBUG, "A page is not up to date: %s", error
            )
        finally:
            with self._lock:
                if not problem:
                    self._value, self._read_s = value, begun_s
                self._problem, self._stalls = problem, stalls
                self._ended_s, self._running = time.monotonic(), None

    def last(self) -> SharedValue[_T]:
        """Return the last value without starting a read."""
        with self._lock:
            now_s = time.monotonic()
            age_s = now_s - self._read_s if self._read_s > float("-inf") else None
            running_s = now_s - self._begun_s if self._running else None
            return SharedValue(self._value, age_s, self._problem, running_s)


def problem_of(error: BaseException) -> str:
    """Return what a page says of a failed read."""
    return next((text for kind, text in _PROBLEMS if isinstance(error, kind)), _OTHER_PROBLEM)
