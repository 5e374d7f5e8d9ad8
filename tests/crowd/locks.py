"""Locks in memory, numbered and dropped as by a metastore, and a connection that loses answers."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.metastore.lock_log import LockRow, MetastoreLocks

_LOST, _LOST_LOCKS = 0.02, 0.1
_STALLED, _LONGEST_STALL_S = 0.03, 0.2


class MemoryLocks:
    """The lock calls of a metastore, for threads of one process.

    :param timeout_s: seconds without a heartbeat after which a lock is dropped.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._mutex = threading.RLock()
        self._rows: dict[int, list[LockRow]] = {}

    def lock(self, table: str, partitions: Iterable[str]) -> int:
        with self._mutex:
            lock_id, since_ms = next(self._ids), round(time.time() * 1000)
            self._rows[lock_id] = [
                LockRow(lock_id, table, partition, True, "", since_ms) for partition in partitions
            ]
            return lock_id

    def unlock(self, lock_id: int) -> None:
        with self._mutex:
            self._rows.pop(lock_id, None)

    def rows(self, table: str | None = None) -> list[LockRow]:
        with self._mutex:
            oldest_ms = time.time() * 1000 - self._timeout_s * 1000
            for lock_id, rows in list(self._rows.items()):
                if rows[0].since_ms < oldest_ms:
                    del self._rows[lock_id]
            all_rows = itertools.chain(*self._rows.values())
            return [row for row in all_rows if table in (None, row.table)]

    def setting(self, name: str) -> str:
        return ""

    def close(self) -> None:
        pass


class Lossy:
    """A connection that sometimes loses a call or its answer, or is slow; it counts them.

    :param locks: the locks behind it.
    :param seed: decides when.
    """

    def __init__(self, locks: MetastoreLocks, seed: str) -> None:
        self.locks = locks
        self._random = random.Random(seed)
        self.calls = self.lost = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            lost = _LOST_LOCKS if name == "lock" else _LOST
            fate = self._random.random() if name != "close" else 1.0
            if self._random.random() < _STALLED:
                time.sleep(self._random.uniform(0, _LONGEST_STALL_S))
            if fate < lost / 2:
                self._lose()
            answer = getattr(self.locks, name)(*arguments)
            if fate < lost:
                self._lose()
            return answer

        return call

    def _lose(self) -> None:
        self.lost += 1
        raise LockUnreachableError("the answer was lost")
