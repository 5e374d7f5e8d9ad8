"""The shared watches over a table's commits, and what its consumers can read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.storage.incremental import WriteState, write_state
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.triggers.shared_watch import storage_name


@dataclass(frozen=True, slots=True)
class _Target:
    """The key of a watch over a table.

    :param table: canonical base path of the table.
    :param storage_conn_id: Airflow connection of its storage, or ``None``.
    :param poll_s: seconds between two listings.
    """

    table: str
    storage_conn_id: str | None
    poll_s: float

    @property
    def service(self) -> str:
        """The name of the storage, which has its own threads."""
        return storage_name(self.table, self.storage_conn_id)

    def due_s(self, seen: object) -> float:  # noqa: ARG002
        """Return infinity: between two listings nothing is due."""
        return math.inf


@dataclass(frozen=True, slots=True)
class CommitTarget(_Target):
    """The key of a watch over the commits of a table, which need not exist yet."""

    def open(self) -> Callable[[], Snapshot]:
        """Return what lists the timeline of the table."""
        table, last = open_table(self.table, self.storage_conn_id), list[Snapshot]()

        def look() -> Snapshot:
            last[:] = [table.snapshot(*last, missing_ok=True)]
            return last[0]

        return look

    def state(self, seen: Snapshot) -> object:
        """Return the completed writes."""
        return seen.config.version, seen.timeline.completed_writes()


@dataclass(frozen=True, slots=True)
class WindowTarget(_Target):
    """The key of a watch over what the consumers of a table can read next."""

    def open(self) -> Callable[[], WriteState]:
        """Return what lists the timeline of the table and, if they matter, the heartbeats."""
        table, last = open_table(self.table, self.storage_conn_id), list[Snapshot]()

        def look() -> WriteState:
            seen = write_state(table, previous=last[0] if last else None)
            last[:] = [seen.snapshot]
            return seen

        return look

    def state(self, seen: WriteState) -> object:
        """Return the completed writes, and the live ones that hold windows up."""
        snapshot = seen.snapshot
        return snapshot.config.version, snapshot.timeline.completed_writes(), seen.pending.live
