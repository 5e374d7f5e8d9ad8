"""Writers that are not protected like their neighbours, and stuck actions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.strategy import possible_releases
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, some
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TABLE_VERSIONS
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, Liveness
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX
from airflow_occ_provider.spelling import spell_time

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
# How long a process may work at one step; a restore stops every writer from its first moment on.
_LIMITS_MS = {
    "restore": 0,
    "rollback": 30 * _MINUTE_MS,
    "savepoint": 30 * _MINUTE_MS,
    "clean": _HOUR_MS,
}
_LONGEST_MS = 6 * _HOUR_MS
FINISH_RESTORE = "run the same restore again (CALL rollback_to_savepoint), which Hudi then continues"
"""What ends a pending restore."""
_NEXT_CLEAN = "HudiCleanOperator, or the next write with a clean, continues it"
_HARMS = {
    "restore": (
        "Hudi refuses every write until it is completed, and the table may be half restored",
        f"{FINISH_RESTORE}; end the writers before",
    ),
    "clean": (
        "old file versions stay, and archival waits for it",
        f"{_NEXT_CLEAN}; if each one fails, look in its log what it cannot delete",
    ),
    "savepoint": (
        "it protects nothing yet",
        "when no driver of the table runs, delete {file} and make the savepoint again",
    ),
    "indexing": (
        "its index is not used, and archival waits for it",
        "run HoodieIndexer with --mode execute, or drop that index",
    ),
}
_OTHER = "archival waits for it", "look in the log of the job that began it, and run that job again"
_IDENTITY = f"{SIGNATURE_PREFIX}identity"  # attempts.identity.IDENTITY_KEY, of another room


@dataclass(frozen=True, slots=True)
class PendingAction:
    """A pending action of another kind than a write or a table service.

    :param reached_ms: epoch milliseconds at which its last file was written, if that is known.
    :param live: whether its process has a heartbeat that has not expired.
    :param victims: requested times of the instants that it takes back.
    :param are_gone: whether none of these is in the timeline any more.
    """

    instant: Instant
    reached_ms: int | None
    live: bool = False
    victims: frozenset[str] = frozenset()
    are_gone: bool = False


def stuck_actions(actions: Iterable[PendingAction], now_ms: int) -> Iterator[Finding]:
    """Yield the pending actions that no process seems to continue.

    A restore is always one: Hudi starts no write while it is pending (Hudi 1.2.0,
    ``BaseHoodieWriteClient.startCommit``).
    """
    for pending in actions:
        action = pending.instant.action
        reached_ms = pending.reached_ms
        age_ms = 0 if reached_ms is None else now_ms - reached_ms
        if pending.live or age_ms < _LIMITS_MS.get(action, _LONGEST_MS):
            continue
        since = "" if reached_ms is None else f" since {spell_time(reached_ms)}"
        harm, remedy = _harm_and_remedy(pending)
        yield Finding(
            "pending_restore" if action == "restore" else "stuck_action",
            Severity.ERROR if action == "restore" else Severity.WARNING,
            (pending.instant.time,),
            f"{pending.instant} has not moved{since}: {harm}",
            remedy,
        )


def _harm_and_remedy(pending: PendingAction) -> tuple[str, str]:
    """Return what a pending action keeps from working, and how it is ended."""
    if pending.instant.action == "rollback":
        return _of_rollback(pending)
    harm, remedy = _HARMS.get(pending.instant.action, _OTHER)
    return harm, remedy.format(file=pending.instant.file_name)


def _of_rollback(pending: PendingAction) -> tuple[str, str]:
    instant = pending.instant
    victims = ", ".join(sorted(pending.victims)) or "an instant that its plan does not name"
    if not pending.are_gone:
        return f"it takes back {victims}, and archival waits for it", _NEXT_CLEAN
    files = " and ".join(filter(None, (instant.requested_file, instant.inflight_file)))
    harm = f"it takes back {victims}, which has left the timeline: no writer continues it"
    return f"{harm}, and archival waits for it", (
        f"when no driver of the table runs, delete {files}: Hudi continues a rollback only while the "
        "instant that it takes back is pending"
    )


def is_signed(commit: CommitMetadata) -> bool:
    """Whether a task of this provider made a commit."""
    return _IDENTITY in commit.extra


def unsigned_writes(commits: Mapping[Instant, CommitMetadata]) -> Iterator[Finding]:
    """Yield a finding if signed and unsigned writes are in one table."""
    writes = {instant: commit for instant, commit in commits.items() if not commit.is_table_service}
    unsigned = tuple(instant.time for instant, commit in writes.items() if not is_signed(commit))
    if unsigned and len(unsigned) < len(writes):
        yield Finding(
            "unsigned_writes",
            Severity.NOTICE,
            unsigned,
            f"{len(unsigned)} of {len(writes)} writes are not signed ({some(unsigned)}): another "
            "program than HudiWriteOperator writes the table too",
            "give it the options that airflow hudi conf prints; without them it rolls back live "
            "writers, and one of a newer Hudi upgrades the table, which older ones then cannot read, "
            f"nor, from table version {TABLE_VERSIONS[-1] + 1} on, this package",
        )


def pending_without_heartbeat(
    pending: Mapping[Instant, Heartbeat], stuck: Collection[Instant] = ()
) -> Iterator[Finding]:
    """Yield the pending writes without a heartbeat, or with an expired one.

    :param stuck: those whose files are hours old: no clean has rolled them back.
    """
    bare = tuple(instant.time for instant, beat in pending.items() if beat.liveness is Liveness.NONE)
    if bare:
        yield Finding(
            "no_heartbeat",
            _of_pending(bare, stuck),
            bare,
            f"pending writes have no heartbeat ({some(bare)}): each has lost or failed, or is a single "
            "writer that commits without a check",
            "end such a single writer; the rest is rolled back by HudiCleanOperator or the next clean",
        )
    dead = tuple(instant.time for instant, beat in pending.items() if beat.liveness is Liveness.DEAD)
    if dead:
        yield Finding(
            "dead_writers",
            _of_pending(dead, stuck),
            dead,
            f"pending writes have an expired heartbeat ({some(dead)}): a lazy clean rolls them back",
            "run HudiCleanOperator on the table, or wait for the clean of the next commit",
        )


def _of_pending(times: Collection[str], stuck: Collection[Instant]) -> Severity:
    is_stuck = any(instant.time in times for instant in stuck)
    return Severity.WARNING if is_stuck else Severity.NOTICE


def mixed_releases(table_version: int, commits: Mapping[Instant, CommitMetadata]) -> Iterator[Finding]:
    """Yield a finding if different releases of Hudi made the commits by turns.

    Only tables of version 6 show it: their write statistics are JSON. One change is an upgrade.
    """
    told = [
        (possible_releases(table_version, commit.stat_fields), instant.time)
        for instant, commit in sorted(commits.items())
        if commit.stat_fields is not None
    ]
    turns = [after for before, after in pairwise(told) if not set(before[0]) & set(after[0])]
    if len(turns) > 1:
        kinds = sorted({" or ".join(f"{a}.{b}" for a, b in releases) for releases, _ in told})
        yield Finding(
            "mixed_releases",
            Severity.WARNING,
            tuple(time for _, time in turns),
            f"writers of several releases of Hudi made the commits by turns: {'; '.join(kinds)}",
            "use one release for all writers: their rules for conflicts differ, and a writer of 1.0 or "
            "later upgrades the table at its first write unless it has hoodie.write.auto.upgrade=false "
            f"and hoodie.write.table.version={table_version}; the older ones then cannot read it",
        )


def mixed_markers(kinds: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding if the pending writes use several kinds of markers.

    :param kinds: the kind of each pending write's markers, by its requested time.
    """
    distinct = sorted(set(kinds.values()))
    if len(distinct) > 1:
        shown = "; ".join(
            f"{kind}: {some(t for t, k in kinds.items() if k == kind)}" for kind in distinct
        )
        yield Finding(
            "mixed_markers",
            Severity.WARNING,
            tuple(sorted(kinds)),
            f"pending writes use several kinds of markers ({shown}): early conflict detection of one "
            "kind does not see the other's",
            "set hoodie.write.markers.type to one value for all writers, or do not rely on Hudi's early "
            "conflict detection",
        )


def held_back_archival(
    completed: Sequence[Instant], pending: Sequence[Instant], most: int
) -> Iterator[Finding]:
    """Yield a finding if a pending instant keeps others from the archive.

    :param most: completed writes that the active timeline may have, ``hoodie.keep.max.commits``.
    """
    if not pending:
        return
    oldest = min(pending)
    younger = [instant for instant in completed if instant.time > oldest.time]
    if len(younger) > most:
        yield Finding(
            "archival_held_back",
            Severity.WARNING,
            (oldest.time,),
            f"{oldest} is pending, and {len(younger)} younger writes have completed: Hudi archives none "
            "of them before it has ended, so that each look at the table takes longer",
            "let HudiCleanOperator, HudiCompactionOperator or HudiClusteringOperator end it",
        )


def stuck_services(
    plans: Sequence[tuple[ConcurrentOperation, Heartbeat]], now_ms: int, limit_ms: int
) -> Iterator[Finding]:
    """Yield the plans of table services that nothing has run for a long time."""
    for plan, beat in plans:
        reached_ms = plan.inflight_ms or plan.requested_ms
        if reached_ms is None or now_ms - reached_ms < limit_ms or beat.live:
            continue
        hours = (now_ms - reached_ms) / 3_600_000
        clustering = plan.operation_type == "CLUSTER"
        harm = "it rejects updates of its file groups" if clustering else "its log files stay unmerged"
        operator = "HudiClusteringOperator" if clustering else "HudiCompactionOperator"
        yield Finding(
            "stuck_service",
            Severity.WARNING,
            (plan.instant.time,),
            f"{plan.instant} has not moved for {hours:.0f} h: {harm}, and archival waits for it",
            f"run {operator} on the table: it runs the plan again, or removes it",
        )
