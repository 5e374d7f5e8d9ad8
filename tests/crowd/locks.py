"""Locks in memory, granted and dropped as by a metastore, and a connection that loses answers."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pymetastore.hive_metastore.ttypes import NoSuchLockException

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.metastore.locks import MetastoreLocks, Part, Row

_LOST, _LOST_LOCKS = 0.02, 0.1
_STALLED, _LONGEST_STALL_S = 0.03, 0.2


class MemoryLocks:
    """Locks by the rules of Hive's ``TxnHandler``, for threads of one process.

    :param timeout_s: seconds without a heartbeat after which one is dropped.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._mutex = threading.RLock()
        self._rows: dict[int, list[Row]] = {}
        self._beats: dict[int, float] = {}

    def lock(self, parts: Iterable[Part], user: str, agent: str) -> tuple[int, bool]:
        with self._mutex:
            lock_id = next(self._ids)
            self._rows[lock_id] = [Row(lock_id, part, False, agent, user, 0) for part in parts]
            return lock_id, self.check(lock_id)

    def check(self, lock_id: int) -> bool:
        with self._mutex:
            self._beats.setdefault(lock_id, time.monotonic())
            self.heartbeat(lock_id)
            earlier_rows = [row for one in self._rows if one < lock_id for row in self._rows[one]]
            mine = self._rows[lock_id]
            if any(_waits(row.part, earlier.part) for row in mine for earlier in earlier_rows):
                return False
            self._rows[lock_id] = [row._replace(acquired=True) for row in mine]
            return True

    def heartbeat(self, lock_id: int) -> None:
        with self._mutex:
            self._drop()
            if lock_id not in self._rows:
                raise NoSuchLockException(str(lock_id))
            self._beats[lock_id] = time.monotonic()

    def unlock(self, lock_id: int) -> None:
        with self._mutex:
            self._rows.pop(lock_id, None)

    def rows(self, table: str | None = None) -> list[Row]:
        with self._mutex:
            self._drop()
            return [
                row._replace(since_ms=round(self._beats[row.lock_id] * 1e6))
                for row in itertools.chain(*self._rows.values())
                if table in (None, row.part.table)
            ]

    def setting(self, name: str) -> str:
        return ""

    def close(self) -> None:
        pass

    def _drop(self) -> None:
        for lock_id in list(self._rows):
            if time.monotonic() - self._beats[lock_id] > self._timeout_s:
                del self._rows[lock_id]


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


def _waits(part: Part, earlier: Part) -> bool:
    return (
        part.table == earlier.table
        and ("" in (part.partition, earlier.partition) or part.partition == earlier.partition)
        and (part.exclusive or earlier.exclusive)
    )
