"""The writes of one driver, what took them back, and the guard against others."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import Entry, is_logged_by
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.errors import ConfigurationError, MisconfigurationError
from airflow_occ_provider.hudi.format.instant import Instant, elapsed_ms
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.address import may_be_one_table, parse_table_path
from airflow_occ_provider.storage.snapshot import Snapshot

# Hudi 0.15.0 to 1.2.0: HoodieActiveTimeline and ActiveTimelineV2, before any data is written.
_LOGGER = re.compile(r"\b(?:HoodieActiveTimeline|ActiveTimelineV[12])\b")
_BEGUN = re.compile(
    r"Create new file for toInstant \?(?P<table>(?:(?!/\.hoodie/)\S)+)"
    r"/\.hoodie/(?!metadata/)\S+\.inflight"
)
_ROLLED_BACK = Fate.ROLLED_BACK
_MOST = 50
"""Of a stream's writes, only the youngest are looked at."""


class OneTable:
    """Looks in what comes from a driver for writes to other tables than its own.

    A commit to another table would be made under this table's lock. It would not exclude the other
    table's own writers, which use a lock with that table's name.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._other = ""
        self._is_followed = False

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if there is a second table."""
        return Stop(Outcome.MISCONFIGURATION, self._message) if self._other else None

    def on_entry(self, entry: Entry) -> Stop | None:
        """Take what comes from the driver; return the reason to stop, if any.

        :param entry: a printed line counts only if the runner cannot follow Hudi's loggers: a job may
            print the log of another driver.
        """
        if not isinstance(entry, str) and entry["fact"] == "protected":
            self._is_followed = entry.get("followed") is True
        begun = None if self._other else _BEGUN.search(self._recorded(entry))
        if begun and is_other_table(self._table, begun["table"]):
            self._other = begun["table"]
        return self.stop

    def _recorded(self, entry: Entry) -> str:
        """Return what Hudi's timeline has logged, if the entry is its record."""
        if isinstance(entry, str):
            return entry if not self._is_followed and is_logged_by(_LOGGER, entry) else ""
        is_of_timeline = entry["fact"] == "hudi" and _LOGGER.search(str(entry.get("logger")))
        return str(entry.get("message")) if is_of_timeline else ""

    def refuse(self, *, committed: bool | None) -> None:
        """Raise if the driver wrote to a second table.

        :param committed: whether the write to the driver's own table has landed; ``None`` if the table
            does not show it, for example because it does not exist yet.
        """
        if self._other:
            raise MisconfigurationError(
                self._message,
                outcome=Outcome.MISCONFIGURATION,
                remedy="write each table by a task of its own, or lock in ZooKeeper, where each table "
                "has its own lock",
                committed=committed,
            )

    @property
    def _message(self) -> str:
        return (
            f"the job began to write {self._other} beside {self._table}, and was ended: Hudi's lock in "
            "the metastore has one name for all that a driver writes"
        )


def is_other_table(table: str, logged: str) -> bool:
    """Whether a driver's log names another table.

    :param table: base path of the driver's own table.
    :param logged: a table as Hadoop prints it.
    """
    try:
        return not may_be_one_table(_followed(table), _followed(logged))
    except ConfigurationError:
        return False  # a relative path proves nothing


def _followed(table: str) -> str:
    """Return a table's path; of a local one, where its symbolic links lead."""
    scheme, path = parse_table_path(table)
    return os.path.realpath(path.removeprefix("file://")) if scheme == "file" else table


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


class TakenBack(NamedTuple):
    """The rollbacks of an attempt's writes by other processes.

    :param outcome: ``ROLLED_BACK`` if a heartbeat was fresh, so that only a writer without optimistic
        concurrency control can have done it; else ``HEARTBEAT_EXPIRED``.
    """

    outcome: Outcome
    lines: tuple[str, ...]


def taken_back(
    snapshot: Snapshot, log: DriverLog, stop: Stop | None, rule: HeartbeatRule
) -> TakenBack | None:
    """Return what other processes took back; ``None`` if nothing.

    Hudi 0.15 rolls a failed bulk insert back in the same driver: what the driver requested itself does
    not count. A lazy clean rolls a write back once its heartbeat has expired. That it had not is known
    if the guard of the heartbeat stopped the driver for it, or if it came sooner after the write's
    request than a heartbeat expires.

    :param stop: why a guard ended the driver, if one did.
    """
    pairs = ((time, snapshot.rollback_of(time)) for time in log.own_instants)
    foreign = [
        (time, rollback)
        for time, rollback in pairs
        if rollback and rollback.time not in log.instants.requested
    ]
    if not foreign:
        return None
    is_seen = stop is not None and stop.outcome is Outcome.ROLLED_BACK
    is_fresh = is_seen or any(
        _is_sooner(time, rollback.time, rule.tolerance_ms) for time, rollback in foreign
    )
    why = "" if is_fresh else ": its heartbeat had expired, as far as is known"
    lines = tuple(
        f"{rollback.action} {rollback.time} took back {time}{why}" for time, rollback in foreign
    )
    return TakenBack(Outcome.ROLLED_BACK if is_fresh else Outcome.HEARTBEAT_EXPIRED, lines)


def _is_sooner(begun: str, rolled_back: str, tolerance_ms: int) -> bool:
    took_ms = elapsed_ms(begun, rolled_back)
    return took_ms is not None and 0 <= took_ms < tolerance_ms
