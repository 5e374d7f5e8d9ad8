"""Predicts whether Hudi's early conflict detection will stop a write.

Each strategy checks when a marker is made, so it can refuse only file groups that have no marker
yet. A younger writer never stops an older live one (Hudi 1.2.0, ``MarkerUtils``).
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
    """Judge whether early detection will refuse a future marker of ``ours``.

    The verdict holds for the rivals of now: one that ends before the marker is made is not found.

    :param ours: a pending write, early detection on.
    :param detection: the strategy in use, not ``OFF`` or ``ON``.
    :param check_commits: ``hoodie.write.concurrency.early.conflict.check.commit.conflict``, which
        ``HudiWriteOperator`` sets with direct markers.
    """
    if ours.instant.action not in _STOPPABLE:
        return Verdict(Certainty.NONE)
    checked = (rival for rival in rivals if check_commits or not rival.instant.completed)
    return Verdict.of(_conflict(ours, rival, detection) for rival in checked)


def _conflict(
    ours: ConcurrentOperation, rival: ConcurrentOperation, detection: EarlyDetection
) -> Conflict | None:
    by_server = detection is EarlyDetection.TIMELINE_SERVER
    if rival.instant.completed:
        return None if by_server else _with_commit(ours, rival)
    older = rival.instant.time < ours.instant.time
    if not older or not rival.live or rival.instant.action not in _STOPPABLE:
        return None
    if by_server:
        return _by_server(ours, rival)
    shared = _unmarked(ours) & rival.marked
    reason = "an older writer has markers of file groups that we have not begun yet"
    return Conflict(rival, Certainty.CERTAIN, shared, reason) if shared else None


def _with_commit(ours: ConcurrentOperation, rival: ConcurrentOperation) -> Conflict | None:
    saw_rival = was_seen(ours, rival)
    written = {file_id for _, file_id in rival.file_groups - rival.replaced}
    # Hudi compares bare file ids here.
    shared = frozenset(group for group in _unmarked(ours) if group[1] in written)
    if saw_rival or not shared:
        return None
    certainty = Certainty.POSSIBLE if saw_rival is None else Certainty.CERTAIN
    return Conflict(rival, certainty, shared, "it committed file groups that we have not begun yet")


def _by_server(ours: ConcurrentOperation, rival: ConcurrentOperation) -> Conflict | None:
    shared = (ours.marked | ours.existing) & rival.marked
    if not shared or not _unmarked(ours):
        return None
    begun = ours.marked & rival.marked
    reason = "an older writer has markers of the same file groups: the next check refuses later markers"
    return Conflict(rival, Certainty.CERTAIN if begun else Certainty.POSSIBLE, shared, reason)


def _unmarked(ours: ConcurrentOperation) -> frozenset[FileGroupId]:
    return ours.existing - ours.marked
