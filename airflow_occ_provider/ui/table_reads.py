"""The bounded reads behind the pages: tables, queues and findings."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hudi.doctor.finding import Finding
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import QueuedRequest
from airflow_occ_provider.reading.overview import queue_lines
from airflow_occ_provider.reading.table_state import QueueLine, TableState
from airflow_occ_provider.ui.known_tables import TableSource
from airflow_occ_provider.ui.paced_pool import PacedPool
from airflow_occ_provider.ui.shared_read import SharedRead, SharedValue
from airflow_occ_provider.ui.table_readers import KEPT_S, REOPENED_S, LocalReaders, Readers

PERIOD_S = 10.0
FINDINGS_PERIOD_S = 300.0
PATIENCE_S = 8.0
THREADS = 4  # of each of two pools
_PACE_S = 0.1
_RECENT_S = 30.0
_BRIEFLY_S = 1.0


@dataclass(frozen=True, slots=True)
class QueueState:
    """The queue of a lock connection, with the lines of each of its tables.

    :param lines: by canonical base path.
    :param elsewhere: the lines of any other table: requests that this release cannot read.
    """

    requests: tuple[QueuedRequest, ...]
    lines: Mapping[str, tuple[QueueLine, ...]]
    elsewhere: tuple[QueueLine, ...]

    @classmethod
    def of(cls, requests: tuple[QueuedRequest, ...]) -> QueueState:
        """Return the queue with these requests of all tables; takes long for many."""
        by_table: dict[str, list[QueuedRequest]] = {}
        for queued in requests:
            for table in () if queued.unknown else queued.request.tables:
                by_table.setdefault(table, []).append(queued)
        unknown = [queued for queued in requests if queued.unknown]
        lines = {}
        for table, of_table in by_table.items():
            joined = {other for queued in of_table for other in queued.request.tables}
            near = {queued.name: queued for other in joined for queued in by_table[other]}
            lines[table] = tuple(queue_lines(requests if unknown else near.values(), table))
        return cls(requests, lines, tuple(queue_lines(requests, "")) if unknown else ())

    def at(self, table: str) -> tuple[QueueLine, ...]:
        """Return the lines of a table, oldest first."""
        return self.lines.get(table, self.elsewhere)


@dataclass(frozen=True, slots=True)
class TableReading:
    """A table as a page shows it.

    :param state: of the table with its queue; only the queue if the storage was never read; ``None`` if
        neither was.
    :param source: where the table and its queue are.
    :param storage: the read of the storage; ``None`` if it is not read.
    :param queue: the read of the queue; ``None`` if the table has no lock connection.
    :param findings: of the doctor; ``None`` if no page has asked for them.
    """

    source: TableSource
    state: TableState | None
    storage: SharedValue[TableState] | None
    queue: SharedValue[QueueState] | None
    findings: SharedValue[tuple[Finding, ...]] | None = None


class TableReads:
    """The shared reads of a process: one per table, queue and examination.

    :param readers: read the tables; in this process by default.
    """

    def __init__(self, readers: Readers | None = None) -> None:
        self._readers = readers or LocalReaders()
        self._pool = ThreadPoolExecutor(THREADS, "hudi-ui")  # starts threads on demand, after a fork
        self._paced = PacedPool(THREADS, _PACE_S, "hudi-ui-all")
        self._lock = threading.Lock()
        self._reads: dict[tuple[str, TableSource | str], SharedRead[Any]] = {}
        self._dropped_s = time.monotonic()

    async def table(
        self,
        source: TableSource,
        until_s: float | None = None,
        *,
        with_verdicts: bool = True,
        with_findings: bool = False,
    ) -> TableReading:
        """Return a table of this period, or an earlier state if a read takes too long.

        :param until_s: see ``page_end``.
        :param with_verdicts: without them a read needs fewer requests, one of many begins after the
            other, and a recent state is returned soon. Verdicts of this period are returned in any case.
        :param with_findings: start an examination if it is due. Findings that are known are returned
            in any case.
        """
        end_s = page_end() if until_s is None else until_s
        storage, queue = await asyncio.gather(
            self._storage(source, end_s, with_verdicts=with_verdicts), self._queue(source, end_s)
        )
        findings = self._findings(source, start=with_findings) if source.is_read else None
        state = storage.value if storage else None
        if queue and queue.value is not None:
            state = state or TableState(source.path, round(time.time() * 1000))
            state = replace(state, queue=queue.value.at(source.path))
        return TableReading(source, state, storage, queue, findings)

    def start(self, sources: Iterable[TableSource]) -> None:
        """Start the reads of tables that are due, for a later ``table`` without verdicts."""
        for source in sources:
            if source.is_read and not self._judged(source):
                self._table_read(source, with_verdicts=False).start()

    async def queues(
        self, lock_conn_ids: Iterable[str], until_s: float
    ) -> dict[str, tuple[QueuedRequest, ...]]:
        """Return the requests in the queues of lock connections, as far as they answer."""
        names = sorted(set(lock_conn_ids))
        shared_values = await asyncio.gather(*(self.queue(name, until_s) for name in names))
        return {
            name: shared.value.requests
            for name, shared in zip(names, shared_values, strict=True)
            if shared.value is not None
        }

    async def queue(self, lock_conn_id: str, until_s: float) -> SharedValue[QueueState]:
        """Return the queue of a lock connection."""
        reader = _QueueReader(lock_conn_id)
        read = self._read("queue", lock_conn_id, reader.state, PERIOD_S, reader.close)
        return await read.latest(until_s)

    async def _queue(self, source: TableSource, until_s: float) -> SharedValue[QueueState] | None:
        return await self.queue(source.lock_conn_id, until_s) if source.lock_conn_id else None

    async def _storage(
        self, source: TableSource, until_s: float, *, with_verdicts: bool
    ) -> SharedValue[TableState] | None:
        if not source.is_read:
            return None
        if not with_verdicts and (judged := self._judged(source)):
            return judged
        read = self._table_read(source, with_verdicts=with_verdicts)
        age_s = read.last().age_s
        if not with_verdicts and age_s is not None and age_s < _RECENT_S:
            until_s = min(until_s, time.monotonic() + _BRIEFLY_S)
        return await read.latest(until_s)

    def _table_read(self, source: TableSource, *, with_verdicts: bool) -> SharedRead[TableState]:
        read = partial(self._readers.state, source, with_verdicts=with_verdicts)
        return self._read("table" if with_verdicts else "counts", source, read, PERIOD_S)

    def _judged(self, source: TableSource) -> SharedValue[TableState] | None:
        """Return a table with verdicts if it was read in this period."""
        read = self._reads.get(("table", source))
        last = read.last() if read else None
        return last if last and last.age_s is not None and last.age_s < PERIOD_S else None

    def _findings(self, source: TableSource, *, start: bool) -> SharedValue[tuple[Finding, ...]] | None:
        if start:  # the page shows them at a later refresh
            self._read(
                "findings", source, partial(self._readers.findings, source), FINDINGS_PERIOD_S
            ).start()
        read = self._reads.get(("findings", source))
        return read.last() if read else None

    def _read(
        self,
        kind: str,
        of: TableSource | str,
        read: Callable[[], Any],
        period_s: float,
        close: Callable[[], None] | None = None,
    ) -> SharedRead[Any]:
        with self._lock:
            self._drop_unused()
            pool = self._paced if kind == "counts" else self._pool
            new = SharedRead(read, period_s, pool, close)
            return self._reads.setdefault((kind, of), new)

    def _drop_unused(self) -> None:
        if time.monotonic() - self._dropped_s < KEPT_S / 10:
            return
        self._dropped_s = time.monotonic()
        for key in [key for key, read in self._reads.items() if read.is_unused(KEPT_S)]:
            self._reads.pop(key).close()


def page_end() -> float:
    """Return the time of the monotonic clock until which a page that begins now waits."""
    return time.monotonic() + PATIENCE_S


class _QueueReader:
    """Reads the queue of a lock connection by one session, without removing expired requests."""

    def __init__(self, lock_conn_id: str) -> None:
        self._lock_conn_id = lock_conn_id
        self._opened: tuple[Queue, float] | None = None

    def state(self) -> QueueState:
        if self._opened and time.monotonic() - self._opened[1] >= REOPENED_S:
            self.close()
        if self._opened is None:
            self._opened = lock_hook(self._lock_conn_id).leases(), time.monotonic()
        try:
            return QueueState.of(self._opened[0].requests())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened:
            opened[0].close()
