"""What the pages show beyond the state of a table: no reads, no Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from airflow_occ_provider.attempts.record import AttemptRecord, TaskRecord
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.reading.table_state import TableState
from airflow_occ_provider.ui.links import Viewer

RANGES: Mapping[str, int] = MappingProxyType({"15m": 15, "1h": 60, "6h": 360, "24h": 1440})
"""The ranges of the time axis as the query names them, in minutes."""
DEFAULT_RANGE = "1h"
_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a table's storage or its lock service answers.

    :param answers: whether the last read that ended succeeded; ``None`` before the first one.
    :param since_ms: epoch milliseconds of its last answer; ``None`` if it never answered.
    :param reason: why it does not answer, as a sentence.
    :param reading_since_ms: since when it is being read, which takes longer than usual; ``None`` if it
        is not.
    """

    answers: bool | None = None
    since_ms: int | None = None
    reason: str = ""
    reading_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table as it was last read.

    :param key: names the table in links.
    :param path: its base path, for people.
    :param state: of the last read that succeeded, with the queue alone if the storage was never read;
        ``None`` if nothing was.
    :param findings: of the doctor; ``None`` if it has not examined the table.
    :param findings_problem: why its last examination failed, as a sentence; empty if it did not.
    """

    key: str
    path: str
    state: TableState | None = None
    storage: Reach = field(default_factory=Reach)
    lock: Reach = field(default_factory=Reach)
    findings: tuple[Finding, ...] | None = None
    findings_problem: str = ""

    @property
    def is_stale(self) -> bool:
        """Whether a later read than that of the state has failed."""
        return self.is_read and self.storage.answers is False

    @property
    def is_read(self) -> bool:
        """Whether the storage was read: else the state has the queue alone."""
        return self.state is not None and (
            bool(self.storage.answers) or self.storage.since_ms is not None
        )

    @property
    def worst(self) -> Finding | None:
        """The worst finding."""
        return min(self.findings or (), key=lambda finding: _ORDER.index(finding.severity), default=None)


@dataclass(frozen=True, slots=True)
class TablesPage:
    """The page of all tables.

    :param now_ms: epoch milliseconds.
    """

    tables: tuple[KnownTable, ...]
    now_ms: int
    viewer: Viewer = field(default_factory=Viewer)


@dataclass(frozen=True, slots=True)
class TablePage:
    """The page of one table.

    :param now_ms: epoch milliseconds.
    :param span: of the time axis, a key of ``RANGES``.
    :param task_states: of the owners of requests, as far as Airflow's database knows them.
    """

    table: KnownTable
    now_ms: int
    viewer: Viewer = field(default_factory=Viewer)
    span: str = DEFAULT_RANGE
    task_states: Mapping[Owner, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt, with what the table shows of it.

    :param instants: the state of each of its instants, by requested time.
    :param commit: requested time of the instant that it, and no other attempt, committed, if the
        table shows it.
    :param committed: ``None`` if neither the table nor the record says whether it did.
    """

    record: AttemptRecord
    instants: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    committed: bool | None = None


@dataclass(frozen=True, slots=True)
class AttemptsPage:
    """The page of a task run's attempts.

    :param record: ``None`` if the task run has none.
    :param now_ms: epoch milliseconds.
    :param unreadable: why the table could not be read; empty if it was.
    :param keys: the keys of the known tables, by path.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    record: TaskRecord | None
    attempts: tuple[AttemptRow, ...]
    now_ms: int
    viewer: Viewer = field(default_factory=Viewer)
    unreadable: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
