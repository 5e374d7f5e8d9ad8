"""A thread pool whose calls start one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")


class PacedPool(ThreadPoolExecutor):
    """A thread pool whose calls start some time after each other.

    Of 50 reads at once, each takes the API server's Python for less than a millisecond, since another
    process does them. But that process then needs a whole core, and in a container with a limit of CPU
    time it takes that of Airflow's own API.

    :param pace_s: seconds between the starts of two calls.
    """

    def __init__(self, threads: int, pace_s: float, name: str) -> None:
        super().__init__(threads, name)
        self._pace_s = pace_s
        self._turn = threading.Lock()
        self._next_s = float("-inf")

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Call a function in one of the threads, in its turn."""

        def in_turn() -> _T:
            self._wait()
            return fn(*args, **kwargs)

        return super().submit(in_turn)

    def _wait(self) -> None:
        with self._turn:
            now_s = time.monotonic()
            start_s = max(now_s, self._next_s)
            self._next_s = start_s + self._pace_s
        time.sleep(start_s - now_s)
