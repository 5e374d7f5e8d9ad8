"""Virtual time for queues, for triggers, and for the loop that runs them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.triggers import base, lease

_PAUSE_S = 0.0003
_QUIET = 4


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Make every new queue and both triggers use this clock."""
        with (
            mock.patch.object(Queue.__init__, "__defaults__", (self.monotonic,)),
            mock.patch.object(lease, "time", self),
            mock.patch.object(base, "time", self),
        ):
            yield


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers go by a clock; what runs in threads takes no time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self._in_threads = 0

    def time(self) -> float:
        return self.clock.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._on_done)
        return future

    def _on_done(self, _: object) -> None:
        self._in_threads -= 1

    async def settle(self) -> None:
        """Return when all coroutines and threads have done what they can at this time."""
        quiet = 0
        while quiet < _QUIET:
            await asyncio.sleep(0)
            quiet = 0 if self._in_threads else quiet + 1
            if self._in_threads:
                time.sleep(_PAUSE_S)  # noqa: ASYNC251 - real time, for the threads
