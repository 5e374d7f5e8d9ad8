"""The writers' heartbeats, kept up by a separate process."""

from __future__ import annotations

import heapq
import os
import random
import time
from multiprocessing import Process
from multiprocessing.connection import Connection, Pipe
from typing import Self

from tests.bench.load import Load

_SLOWEST_S = 0.05


class Beating:
    """Keeps up the heartbeats of a load's writers in a ``with`` block, until they are stopped.

    :param load: the writers.
    :param seed: of the jitter.
    """

    def __init__(self, load: Load, seed: int = 7) -> None:
        self._load = load
        self._here, there = Pipe()
        self._process = Process(target=_beat, args=(load, seed, there), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def stop(self, table: int, instant: str) -> float:
        """Stop a writer's heartbeat; return the epoch seconds of the last one."""
        self._here.send((table, instant))
        self._here.recv()
        return self._load.heartbeat(table, instant).stat().st_mtime


def _beat(load: Load, seed: int, orders: Connection) -> None:
    rng = random.Random(seed)
    interval_s = load.interval_ms / 1000
    writers = [(table, instant) for table in range(load.tables) for instant in load.instants()]
    now_s = time.monotonic()
    due = [(now_s + rng.uniform(0, interval_s), writer) for writer in writers]
    heapq.heapify(due)
    stopped = set()
    while True:
        wait_s = min(_SLOWEST_S, max(0.0, due[0][0] - time.monotonic()))
        if orders.poll(wait_s):
            stopped.add(orders.recv())
            orders.send(None)
        while due[0][0] <= time.monotonic():
            at_s, writer = due[0]
            # From when it was due, as java.util.Timer at a fixed rate does: the jitter does not add up.
            heapq.heapreplace(due, (at_s + interval_s * (1 + rng.uniform(-1, 1) * load.jitter), writer))
            if writer not in stopped:
                os.utime(load.heartbeat(*writer))
