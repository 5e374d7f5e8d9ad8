"""Whether Hudi's early conflict detection will stop a write before it commits, told from the markers.

Each strategy looks when a marker is made, so only file groups that are still without one can be
refused; an older live writer is never stopped by a younger one (Hudi 1.2.0, ``MarkerUtils``).
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Conflict, Verdict, was_seen
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection

_STOPPABLE = frozenset({"commit", "deltacommit"})


def judge_early(
    ours: ConcurrentOperation,
    rivals: Iterable[ConcurrentOperation],
    detection: EarlyDetection,
    *,
    check_commits: bool = True,
) -> Verdict:
    """Tell whether early detection will refuse one of the markers that ``ours`` has yet to make.

    As things stand: a rival that ends before the marker is made is no longer found by it.

    :param ours: a pending write, early detection on.
    :param rivals: the other operations, completed and pending.
    :param detection: the strategy in use, not ``OFF`` or ``ON``.
    :param check_commits: ``hoodie.write.concurrency.early.conflict.check.commit.conflict``, which
        ``HudiWriteOperator`` sets with direct markers.
    """
    if ours.instant.action not in _STOPPABLE:
        return Verdict(Certainty.NONE)
    looked_at = (rival for rival in rivals if check_commits or not rival.instant.completed)
    return Verdict.of(_conflict(ours, rival, detection) for rival in looked_at)


def _conflict(
    ours: ConcurrentOperation, rival: ConcurrentOperation, detection: EarlyDetection
) -> Conflict | None:
    by_server = detection is EarlyDetection.TIMELINE_SERVER
    if rival.instant.completed:
        return None if by_server else _with_commit(ours, rival)
    elder = rival.instant.time < ours.instant.time
    if not elder or not rival.live or rival.instant.action not in _STOPPABLE:
        return None
    return _by_server(ours, rival) if by_server else _directly(ours, rival)


def _with_commit(ours: ConcurrentOperation, rival: ConcurrentOperation) -> Conflict | None:
    seen = was_seen(ours, rival)
    written = {file_id for _, file_id in rival.file_groups - rival.replaced}
    # Hudi compares bare file ids here.
    shared = frozenset(group for group in _to_come(ours) if group[1] in written)
    if seen or not shared:
        return None
    certainty = Certainty.POSSIBLE if seen is None else Certainty.CERTAIN
    return Conflict(rival, certainty, shared, "it has committed file groups that we have yet to begin")


def _directly(ours: ConcurrentOperation, rival: ConcurrentOperation) -> Conflict | None:
    shared = _to_come(ours) & rival.marked
    reason = "an older writer has markers of file groups that we have yet to begin"
    return Conflict(rival, Certainty.CERTAIN, shared, reason) if shared else None


def _by_server(ours: ConcurrentOperation, rival: ConcurrentOperation) -> Conflict | None:
    shared = (ours.marked | ours.existing) & rival.marked
    if not shared or not _to_come(ours):
        return None
    begun = ours.marked & rival.marked
    reason = "an older writer has markers of the same file groups: the next look refuses what follows"
    return Conflict(rival, Certainty.CERTAIN if begun else Certainty.POSSIBLE, shared, reason)


def _to_come(ours: ConcurrentOperation) -> frozenset[FileGroupId]:
    return ours.existing - ours.marked
