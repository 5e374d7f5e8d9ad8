"""Signed commits: how a task run finds its own commits in the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from airflow_occ_provider.attempts.audit import audit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    HistoryUnreadableError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

MOST_PARTITIONS = 1000
"""Of a write, in XCom, in the task's record and in a lease: such stores hold some tens of kB."""
_ZONE_SLACK = timedelta(hours=26)  # writers of one LOCAL timeline may run in different zones
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Commit:
    """A signed commit, found in the table."""

    instant: Instant
    metadata: CommitMetadata

    def facts(self, most: int = MOST_PARTITIONS) -> dict[str, Any]:
        """Return what it did, for XCom and asset events.

        :param most: of more partitions, only the first ones are named.
        """
        left_out = len(self.metadata.partitions) - most
        return {
            "instant": self.instant.time,
            "action": self.instant.action,
            "operation": self.metadata.operation_type,
            "partitions": list(self.metadata.partitions[:most]),
            "file_groups": len(self.metadata.file_groups | self.metadata.replaced),
            "records": self.metadata.records,
            **({"partitions_left_out": left_out} if left_out > 0 else {}),
        }


_Wanted: TypeAlias = Callable[[Commit], bool]

NO_COMMIT: dict[str, Any] = {
    "instant": None,
    "action": None,
    "operation": None,
    "partitions": [],
    "file_groups": 0,
    "records": 0,
}
"""The facts of an attempt that wrote nothing."""


def find_commit(snapshot: Snapshot, identity: str, since: str = "") -> Commit | None:
    """Find the youngest write commit that carries an identity.

    The active timeline is searched first, then the archive. Commits of table services copy the labels
    of the write that ran them, and do not count.

    :param since: requested time of a completed write that is older than the commit, or empty.
    :raises HistoryUnreadableError: if only archived instants can show it, and they cannot be read.
    """
    return _Search(snapshot, since).first(_signed_by([identity]))


def find_recorded(snapshot: Snapshot, instants: Sequence[str], since: str = "") -> Commit | None:
    """Find the youngest write commit among some instants.

    :param instants: requested times.
    :param since: as in ``find_commit``.
    :raises HistoryUnreadableError: as ``find_commit``.
    """
    return _Search(snapshot, since).first(_among(instants)) if instants else None


class _GoneError(Exception):
    """A listed file no longer existed when it was read."""


@dataclass(slots=True)
class _Search:
    """The completed writes of a table, youngest first, in the active timeline or the history.

    A file that disappears between the listing and the read was archived, rolled back, or moved by an
    upgrade: then the table is listed again and the history is searched too.
    """

    snapshot: Snapshot
    since: str
    _has_missed: bool = False

    def __post_init__(self) -> None:
        self.snapshot = self.snapshot.whole()

    def first(self, wanted: _Wanted) -> Commit | None:
        """Return the youngest write that is wanted."""
        for _ in range(_LOOKS):
            try:
                return next((commit for commit in self._commits() if wanted(commit)), None)
            except _GoneError:
                self.snapshot, self._has_missed = self.snapshot.reload(), True
        raise TableUnreadableError(
            f"{self.snapshot.path}: files of the timeline keep vanishing before they can be read",
            remedy="the next try looks again",
        )

    def _commits(self) -> Iterator[Commit]:
        yield from self._read(self.snapshot.timeline.completed_writes())
        if not self._is_all_active() and self.snapshot.has_history():
            # A commit made after `since` can only have been archived later.
            history = self.snapshot.history(_earliest_ms(self.since))
            yield from self._read([one for one in history if one.is_write])

    def _is_all_active(self) -> bool:
        """Whether nothing younger than ``since`` can be archived: Hudi archives the oldest first.

        A write that a savepoint keeps may stay longer (``hoodie.archive.beyond.savepoint``).
        """
        of_since = [one for one in self.snapshot.timeline if one.time == self.since]
        kept = any(one.action == "savepoint" for one in of_since)
        return bool(self.since and of_since) and not kept and not self._has_missed

    def _read(self, oldest_first: Sequence[Instant]) -> Iterator[Commit]:
        for instant in reversed(oldest_first):
            if self.since and not _may_be_younger(instant.time, self.since):
                return
            metadata = self.snapshot.reader.commit(instant)
            if metadata is not None:
                yield Commit(instant, metadata)
            elif not instant.archived:
                raise _GoneError
            else:
                raise HistoryUnreadableError(
                    f"what archived {instant} did cannot be decoded, by Hudi neither: its upgrade of "
                    "the table left Avro without a schema",
                    remedy="upgrade with Hudi 1.2, which archives what can be read",
                )


def _signed_by(identities: Sequence[str]) -> _Wanted:
    def wanted(commit: Commit) -> bool:
        signature = Signature.from_extra(commit.metadata.extra)
        is_own = signature is not None and signature.identity in identities
        return is_own and not commit.metadata.is_table_service

    return wanted


def _among(instants: Sequence[str]) -> _Wanted:
    return lambda commit: commit.instant.time in instants and not commit.metadata.is_table_service


def earlier_commit(
    table: HudiTable,
    identities: Sequence[str],
    since: str,
    recorded: Sequence[str] = (),
    *,
    must_exist: bool = False,
    signed: bool = True,
) -> Commit | None:
    """Find what an earlier try of a task run committed, and check its data.

    :param since: requested time of a completed write that is older than the commit, or empty.
    :param recorded: recorded requested times of the writes of earlier tries.
    :param must_exist: whether the table is known to have existed: then a missing table means that the
        storage does not show it.
    :param signed: whether the job's commits are signed; else the recorded writes are the task run's.
    :raises CommitStateUnknownError: if only archived instants can show it, and they cannot be read; or
        if a recorded write is completed without a signature.
    :raises DataLossError: if the commit exists and files of it are gone.
    """
    snapshot = table.snapshot(missing_ok=not must_exist)
    search = _Search(snapshot, since)
    try:
        commit = search.first(_signed_by(identities))
        if commit is None and recorded and not signed:
            commit = search.first(_among(recorded))
    except HistoryUnreadableError as error:
        raise CommitStateUnknownError(
            f"commit state unknown: an earlier try may have committed, and {error.message}",
            remedy=f"{error.remedy}; or look there for _airflow_identity={identities[0]}: if it is in "
            "no commit, delete hudi_write from the task's state store and clear the task",
        ) from error
    if commit is None:
        _refuse_unsigned(search, recorded)
        return None
    loss = audit(table, snapshot, commit.instant, commit.metadata)
    if loss:
        raise loss.error()
    return commit


def count_commits(snapshot: Snapshot, identities: Sequence[str], since: str) -> int:
    """Count the write commits of the active timeline that a task run has signed."""
    young = (one for one in snapshot.timeline.completed_writes() if one.time > since)
    commits = (Commit(one, metadata) for one in young if (metadata := snapshot.reader.commit(one)))
    return sum(map(_signed_by(identities), commits))


def _refuse_unsigned(search: _Search, recorded: Sequence[str]) -> None:
    def unsigned(commit: Commit) -> bool:
        is_own = commit.instant.time in recorded and not commit.metadata.is_table_service
        return is_own and not Signature.from_extra(commit.metadata.extra)

    found = search.first(unsigned) if recorded else None
    if found:
        raise CommitStateUnknownError(
            f"commit state unknown: {found.instant} was completed by an earlier try, but it is not "
            "signed",
            remedy="leave hoodie.datasource.write.commitmeta.key.prefix alone in the job; if that "
            "commit is this task's work, mark the task as success, else delete hudi_write from its "
            "state store and clear it",
        )


def _earliest_ms(since: str) -> int | None:
    try:
        earliest = _to_second(since).replace(tzinfo=UTC) - _ZONE_SLACK
    except ValueError:
        return None
    return round(earliest.timestamp() * 1000)


def _may_be_younger(time: str, since: str) -> bool:
    try:
        return _to_second(time) >= _to_second(since) - _ZONE_SLACK
    except ValueError:
        return True


def _to_second(time: str) -> datetime:
    return datetime.fromisoformat(f"{time[:8]}T{time[8:14]}")
