"""Writers that are not protected like their neighbours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from airflow_occ_provider.hudi.conflict.evidence import possible_releases
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, some
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, Liveness
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX

_IDENTITY = f"{SIGNATURE_PREFIX}identity"  # attempts.identity.IDENTITY_KEY, of another room


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
            "give it the options that airflow hudi conf prints; without them it rolls back live writers",
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
