"""Reads from a snapshot what the verdict on one pending write needs, and no more."""

from __future__ import annotations

import time as clock
from dataclasses import replace

from airflow_occ_provider.hudi.conflict import Present, Verdict, judge, was_seen
from airflow_occ_provider.hudi.early_conflict import judge_early
from airflow_occ_provider.hudi.early_detection import EarlyDetection
from airflow_occ_provider.hudi.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.hudi.instant import TABLE_SERVICE_ACTIONS, WRITE_ACTIONS, Instant
from airflow_occ_provider.hudi.metadata import FileGroup
from airflow_occ_provider.hudi.operation import Operation
from airflow_occ_provider.hudi.strategy import Rules, Strategy, writer_version_of
from airflow_occ_provider.storage.snapshot import Snapshot

_COMPARED = WRITE_ACTIONS | TABLE_SERVICE_ACTIONS


def conflicts(
    snapshot: Snapshot,
    time: str,
    strategy: Strategy = Strategy.SIMPLE,
    writer_version: tuple[int, int] | None = None,
    *,
    early: EarlyDetection = EarlyDetection.OFF,
    check_commits: bool = True,
    writing: bool = True,
    rule: HeartbeatRule = DEFAULT_RULE,
    now_ms: int | None = None,
) -> Verdict | None:
    """Tell whether a pending write will be refused, and by whom.

    :param time: requested time of the pending write.
    :param strategy: the conflict resolution strategy that it runs with.
    :param writer_version: major and minor number of its Hudi; by default that which the table's
        version belongs to.
    :param early: the strategy of early conflict detection that it runs with: then that is judged too.
    :param check_commits: whether its early detection looks at completed commits too.
    :param writing: whether pending writers may still begin files; ``False`` where a driver's log shows
        that only the commit is left.
    :param rule: how heartbeats are judged: a dead neighbour is no rival for certain.
    :param now_ms: epoch milliseconds of the judgement, by default now.
    :returns: ``None`` where the active timeline has no such pending instant.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    instant = snapshot.timeline.find(time)
    if instant is None or instant.completed:
        return None
    heartbeats, at_ms = snapshot.heartbeats(), now_ms or round(clock.time() * 1000)
    ours = snapshot.operation(instant)
    rivals = [
        snapshot.operation(other, rule.judge(heartbeats.get(other.time), at_ms))
        for other in snapshot.timeline
        if _may_be_rival(other, instant)
    ]
    rules = Rules(
        strategy,
        snapshot.table_version,
        snapshot.merge_on_read,
        writer_version or writer_version_of(snapshot.table_version),
        writing,
    )
    overwritten = any(one.overwrites or one.overwrites_table for one in (ours, *rivals))
    present = _present(snapshot, ours) if overwritten else Present()
    verdict = judge(ours, rivals, rules, present)
    if early is not EarlyDetection.OFF:
        verdict = verdict.with_early(judge_early(ours, rivals, early, check_commits=check_commits))
    return replace(verdict, rolled_back_by=snapshot.rollback_of(time))


def _may_be_rival(other: Instant, ours: Instant) -> bool:
    if other.time == ours.time or other.action not in _COMPARED:
        return False
    return not ("_" in other.file_name and (other.completion_time or "") <= ours.time)


def _present(snapshot: Snapshot, ours: Operation) -> Present:
    done = map(snapshot.operation, snapshot.timeline.completed_writes())
    seen = [operation for operation in done if was_seen(ours, operation)]
    written = frozenset[FileGroup]().union(*(operation.file_groups for operation in seen))
    replaced = frozenset[FileGroup]().union(*(operation.replaced for operation in seen))
    return Present(written - replaced, complete=not snapshot.has_history())
