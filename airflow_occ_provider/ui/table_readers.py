"""The readers of tables behind the pages."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.doctor.finding import Finding
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.reading.overview import read_state
from airflow_occ_provider.reading.table_state import TableState
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.ui.known_tables import TableSource

REQUEST_TIMEOUT_S = 5.0
SHOWN_S = 86_400
KEPT_S = 600.0
REOPENED_S = 300.0  # a changed connection is used then


class Readers(Protocol):
    """What reads tables, for several threads, of which one at a time reads the same."""

    def state(self, source: TableSource, *, with_verdicts: bool) -> TableState:
        """Return a table, without its queue."""

    def findings(self, source: TableSource) -> tuple[Finding, ...]:
        """Return the doctor's findings about a table."""


class LocalReaders:
    """Reads tables in this process. Snapshots of a table save its next read requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[tuple[TableSource, bool], _TableReader] = {}

    def state(self, source: TableSource, *, with_verdicts: bool) -> TableState:
        """Return a table, without its queue."""
        with self._lock:
            now_s = time.monotonic()
            recent = {
                key: reader for key, reader in self._readers.items() if now_s - reader.used_s < KEPT_S
            }
            reader = recent.setdefault(
                (source, with_verdicts), _TableReader(source, with_verdicts=with_verdicts)
            )
            reader.used_s, self._readers = now_s, recent
        return reader.state()

    def findings(self, source: TableSource) -> tuple[Finding, ...]:
        """Return the doctor's findings about a table."""
        lock = lock_hook(source.lock_conn_id) if source.lock_conn_id else None
        return examine(_open(source), lock=lock)


class _TableReader:
    def __init__(self, source: TableSource, *, with_verdicts: bool) -> None:
        self.used_s = time.monotonic()
        self._source = source
        self._with_verdicts = with_verdicts
        self._opened: tuple[HudiTable, float] | None = None
        self._last: Snapshot | None = None

    def state(self) -> TableState:
        if self._opened is None or time.monotonic() - self._opened[1] >= REOPENED_S:
            self._opened, self._last = (_open(self._source), time.monotonic()), None
        since_ms = round((time.time() - SHOWN_S) * 1000)
        state, self._last = read_state(
            self._opened[0], None, since_ms, previous=self._last, with_verdicts=self._with_verdicts
        )
        return state


def _open(source: TableSource) -> HudiTable:
    return open_table(source.path, source.storage_conn_id, timeout_s=REQUEST_TIMEOUT_S)
