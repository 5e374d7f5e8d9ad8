"""The writes of one driver, as its log and the table show them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_occ_provider.attempts.guards.one_table import is_other_table
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.storage.snapshot import Snapshot

_ROLLED_BACK = Fate.ROLLED_BACK
_MOST = 50
"""Of a stream's writes, only the youngest are looked at."""


class Commits(StrEnum):
    """How many commits a job makes, and so what a retry does after one of them."""

    ONE = "one"
    """A commit is the job's whole work: no try runs the job again after it."""
    MANY = "many"
    """The work is done when the job has ended well: until then, each try runs the whole job."""


@dataclass(frozen=True, slots=True)
class OwnWrites:
    """The requested times of a driver's writes, oldest first, without table services.

    :param committed: those that completed in the attempt's table.
    :param unfinished: those that did not: they are pending there, or gone.
    :param unplaced: those that the table does not show, and whose table is unknown.
    :param elsewhere: those in other tables, with the tables.
    :param last_unfinished: the youngest write in the attempt's table, if it did not complete.
    :param taken_back: those that completed, and that a rollback of another process then took back,
        with that rollback.
    """

    committed: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    unplaced: tuple[str, ...] = ()
    elsewhere: tuple[tuple[str, str], ...] = ()
    last_unfinished: str | None = None
    taken_back: tuple[tuple[str, Instant], ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, log: DriverLog) -> OwnWrites:
        """Tell a driver's writes apart.

        A write that the driver began in this table, and that its timeline no longer shows, was rolled
        back, unless the log shows that it completed, and no rollback names it: then it was archived.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        committed: list[str] = []
        unfinished: list[str] = []
        unplaced: list[str] = []
        elsewhere: list[tuple[str, str]] = []
        taken_back: list[tuple[str, Instant]] = []
        last_unfinished = None
        for time in log.own_instants[-_MOST:]:
            table = log.instants.tables.get(time, "")
            instant = snapshot.timeline.find(time)
            if table and is_other_table(snapshot.path, table):
                elsewhere.append((time, table))
            elif instant is None and not (table or log.instants.has_completed(time)):
                unplaced.append(time)
            elif instant is None or not is_service(snapshot, instant):
                has_completed = log.instants.has_completed(time)
                is_gone = instant is None and has_completed and snapshot.ended_as(time) is _ROLLED_BACK
                is_over = instant.completed if instant else has_completed and not is_gone
                (committed if is_over else unfinished).append(time)
                last_unfinished = None if is_over else time
                rollback = snapshot.rollback_of(time) if is_gone else None
                if rollback and rollback.time not in log.instants.requested:
                    taken_back.append((time, rollback))
        return cls(
            tuple(committed),
            tuple(unfinished),
            tuple(unplaced),
            tuple(elsewhere),
            last_unfinished,
            tuple(taken_back),
        )

    @property
    def several(self) -> str:
        """The driver's writes in a few words; empty if it made one commit at most.

        A write before it that failed is none: the job itself has made up for it.
        """
        others = [f"{time} in {table}" for time, table in self.elsewhere]
        writes = [*self.committed, *others]
        if self.last_unfinished:
            writes.append(f"{self.last_unfinished}, which it left unfinished")
        return ", ".join(writes) if len(writes) > 1 else ""


def is_service(snapshot: Snapshot, instant: Instant) -> bool:
    """Whether an instant is a table service that the write has run or planned."""
    if not instant.is_write:
        return True
    if not instant.completed:
        return snapshot.reader.planned(instant) is not None
    metadata = snapshot.reader.commit(instant)
    return metadata is not None and metadata.is_table_service
