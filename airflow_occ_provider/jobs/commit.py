"""Signed commits: how one task run finds again what it has committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_occ_provider.errors import CommitStateUnknownError, HistoryUnreadableError
from airflow_occ_provider.hudi.instant import Instant
from airflow_occ_provider.hudi.metadata import CommitMetadata
from airflow_occ_provider.jobs.audit import audit
from airflow_occ_provider.jobs.identity import Signature
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_ZONE_SLACK = timedelta(hours=26)  # writers of one LOCAL timeline may sit in different zones


@dataclass(frozen=True, slots=True)
class Commit:
    """A signed commit, found in the table."""

    instant: Instant
    metadata: CommitMetadata

    def facts(self) -> dict[str, Any]:
        """Return what it did, for XCom and asset events."""
        return {
            "instant": self.instant.time,
            "action": self.instant.action,
            "operation": self.metadata.operation,
            "partitions": list(self.metadata.partitions),
            "file_groups": len(self.metadata.file_groups | self.metadata.replaced),
            "records": self.metadata.records,
        }


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
    """Find the write commit that carries an identity, youngest first, archived ones last.

    Commits of table services copy the labels of the write that ran them, and do not count.

    :param identity: uuid of the task run.
    :param since: requested time of a completed write that is older than the commit, or empty.
    :raises HistoryUnreadableError: if only archived instants can tell, and they cannot be read.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    active = reversed(snapshot.timeline.completed_writes())
    found = _signed(snapshot, active, identity, since)
    if found or (since and snapshot.timeline.find(since)) or not snapshot.has_history():
        return found
    archived = (instant for instant in reversed(snapshot.history()) if instant.is_write)
    return _signed(snapshot, archived, identity, since)


def _signed(
    snapshot: Snapshot, youngest_first: Iterable[Instant], identity: str, since: str
) -> Commit | None:
    for instant in youngest_first:
        if since and not _may_be_younger(instant.time, since):
            return None
        metadata = snapshot.commit(instant)
        if metadata is None and instant.archived:
            raise HistoryUnreadableError(
                f"what archived {instant} did cannot be decoded, by Hudi neither: its upgrade of the "
                "table left Avro without a schema",
                remedy="upgrade with Hudi 1.2, which archives what can be read",
            )
        if metadata is None or metadata.is_table_service:
            continue
        signature = Signature.from_extra(metadata.extra)
        if signature and signature.identity == identity:
            return Commit(instant, metadata)
    return None


def earlier_commit(
    table: HudiTable,
    identities: Sequence[str],
    since: str,
    told: Sequence[str] = (),
    *,
    must_exist: bool = False,
) -> Commit | None:
    """Find what an earlier try of a task run committed, and see that its data is still there.

    :param identities: of the task run.
    :param since: requested time of a completed write that is older than the commit, or empty.
    :param told: requested times of writes that earlier tries asked for.
    :param must_exist: whether the table is known to have existed: then one that is not there is a
        storage that does not show it.
    :raises CommitStateUnknownError: if only archived instants can tell, and they cannot be read; or
        if a write that was told is completed without a signature.
    :raises DataLossError: if the commit is there and files of it are gone.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    snapshot = table.snapshot(missing_ok=not must_exist)
    try:
        commits = (find_commit(snapshot, identity, since) for identity in identities)
        commit = next(filter(None, commits), None)
    except HistoryUnreadableError as error:
        raise CommitStateUnknownError(
            f"commit state unknown: an earlier try may have committed, and {error.message}",
            remedy=f"{error.remedy}; or look there for _airflow_identity={identities[0]}: if it is in "
            "no commit, delete hudi_write from the task's state store and clear the task",
        ) from error
    if commit is None:
        _refuse_unsigned(snapshot, told)
        return None
    loss = audit(table, snapshot, commit.instant, commit.metadata)
    if loss:
        raise loss.error()
    return commit


def count_commits(snapshot: Snapshot, identities: Sequence[str], since: str) -> int:
    """Count the write commits of the active timeline that a task run has signed.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    young = (one for one in snapshot.timeline.completed_writes() if one.time > since)
    told = filter(None, map(snapshot.commit, young))
    signed = (Signature.from_extra(one.extra) for one in told if not one.is_table_service)
    return sum(1 for one in signed if one and one.identity in identities)


def _refuse_unsigned(snapshot: Snapshot, told: Iterable[str]) -> None:
    for time in told:
        found = snapshot.timeline.find(time)
        metadata = snapshot.commit(found) if found and found.completed and found.is_write else None
        if metadata and not metadata.is_table_service and not Signature.from_extra(metadata.extra):
            raise CommitStateUnknownError(
                f"commit state unknown: {found} was completed by an earlier try, but it is not signed",
                remedy="leave hoodie.datasource.write.commitmeta.key.prefix alone in the job; if that "
                "commit is this task's work, mark the task as success, else delete hudi_write from its "
                "state store and clear it",
            )


def _may_be_younger(time: str, since: str) -> bool:
    try:
        own, other = (datetime.fromisoformat(f"{text[:8]}T{text[8:14]}") for text in (time, since))
    except ValueError:
        return True
    return own >= other - _ZONE_SLACK
