"""Predicts whether Hudi's commit check will refuse a pending write.

::

    requested ──▶ comparison point ──▶ inflight ──▶ commit lock ──▶ completed
                  │  completed before: seen by the write, never a rival
                  └─ completed later: a rival; a shared file group is a conflict

The table does not record the comparison point; the driver's log may show that it is past. If a rival
completed between our requested and our inflight file, the workload profile decides: built on the rival,
it was seen; still naming what the rival replaced, it was not seen. If the profile shows neither, the
verdict is *possible*.

The rules are what each release of Hudi does, also where its documentation says nothing of it.
``make rig NAME=differential`` compares them with real Hudi.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, is_before
from airflow_occ_provider.hudi.conflict.strategy import Duplication, Rules, Strategy
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection

# Hudi routes their new records to small files, if there are any.
_ROUTED = frozenset({"INSERT", "UPSERT", "INSERT_PREPPED", "UPSERT_PREPPED"})
_REFUSES_UPDATES = "until it completes, updates of what it plans to cluster are refused"
_BETWEEN = (
    "it completed between our requested and inflight files; the metadata cannot show whether Hudi saw it"
)
_BUILT_ON = "it completed after our request, and our workload profile is built on it"
_TAKES_ITSELF = "under this strategy a clustering of layout 1 mistakes its own plan for a rival's"
_EXPIRED = "its heartbeat has expired: it loses unless it renews its heartbeat"
_NO_HEARTBEAT = "it has no heartbeat: it failed, or it is a single writer that commits without a check"
_BY_RELEASE = "only some releases of Hudi count it as a rival; the writer's release is not known"
_NON_BLOCKING = "under non-blocking concurrency control only a bulk insert is refused"
_LOG_COMPACTION = "once completed, it counts only if no younger write was completed when ours began"
_STOPPABLE = frozenset({"commit", "deltacommit"})
_DEAD_AFTER_MS = 6 * 3_600_000  # of a write without a heartbeat; an expired one is dead at once


class Certainty(StrEnum):
    """How sure a verdict is."""

    CERTAIN = "certain"
    POSSIBLE = "possible"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One rival that a pending write collides with, or may collide with.

    :param rival: the other instant.
    :param certainty: ``CERTAIN`` or ``POSSIBLE``.
    :param file_groups: the file groups that both touch, if they are known.
    :param reason: why, in a sentence.
    """

    rival: ConcurrentOperation
    certainty: Certainty
    file_groups: frozenset[FileGroupId]
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The prediction for one pending write, with its evidence.

    :param certainty: certainty of the strongest conflict.
    :param conflicts: the evidence, certain conflicts first.
    :param early: the conflicts that early conflict detection will refuse before the commit.
    :param rolled_back_by: the rollback that names the write while it is still pending.
    :param duplications: the overlaps that Hudi allows, after which rows may be there twice.
    """

    certainty: Certainty
    conflicts: tuple[Conflict, ...] = ()
    early: tuple[Conflict, ...] = ()
    rolled_back_by: Instant | None = None
    duplications: tuple[Duplication, ...] = ()

    @classmethod
    def of(cls, conflicts: Iterable[Conflict | None]) -> Verdict:
        """Return the verdict that follows from conflicts; ``None`` entries are ignored."""
        ordered = sorted(
            filter(None, conflicts), key=lambda conflict: conflict.certainty is not Certainty.CERTAIN
        )
        return cls(ordered[0].certainty if ordered else Certainty.NONE, tuple(ordered))

    def among(self, is_rival: Callable[[ConcurrentOperation], bool]) -> Verdict:
        """Return the verdict without the operations that are no rivals."""
        rest = Verdict.of(conflict for conflict in self.conflicts if is_rival(conflict.rival))
        return replace(
            rest,
            early=tuple(conflict for conflict in self.early if is_rival(conflict.rival)),
            rolled_back_by=self.rolled_back_by,
            duplications=tuple(
                duplication for duplication in self.duplications if is_rival(duplication.rival)
            ),
        )

    @property
    def certain_conflict(self) -> Conflict | None:
        """The first certain conflict, if there is one."""
        certain = (conflict for conflict in self.conflicts if conflict.certainty is Certainty.CERTAIN)
        return next(certain, None)


class Present(NamedTuple):
    """The file groups that existed when a write began, and whether these are all."""

    file_groups: frozenset[FileGroupId] = frozenset()
    complete: bool = True


NO_OVERWRITES = Present()
"""If no operation overwrites partitions, it does not matter what exists in them."""


def judge(
    ours: ConcurrentOperation,
    rivals: Iterable[ConcurrentOperation],
    rules: Rules,
    present: Present = NO_OVERWRITES,
) -> Verdict:
    """Judge whether Hudi's commit check will refuse ``ours`` for a rival.

    A pending rival is judged as if it committed first. What was present matters only if one of the
    operations overwrites partitions.
    """
    if ours.is_table_service and rules.strategy is not Strategy.PREFER_WRITER:
        return Verdict(Certainty.NONE)
    if ours.operation_type == "CLUSTER" and rules.clustering_fails:
        itself = Conflict(ours, Certainty.CERTAIN, ours.file_groups, _TAKES_ITSELF)
        return Verdict(Certainty.CERTAIN, (itself,))
    conflicts = (_conflict(ours, rival, rules, present) for rival in rivals)
    return Verdict.of(
        _as_possible(conflict, _NON_BLOCKING) if conflict and rules.non_blocking else conflict
        for conflict in conflicts
    )


def judge_by_any(
    ours: ConcurrentOperation,
    rivals: Sequence[ConcurrentOperation],
    candidates: Sequence[Rules],
    present: Present = NO_OVERWRITES,
) -> Verdict:
    """Judge by several rules; a conflict under only some of them is *possible*."""
    by_rival: dict[str, list[Conflict]] = {}
    for rules in candidates:
        for conflict in judge(ours, rivals, rules, present).conflicts:
            by_rival.setdefault(conflict.rival.instant.time, []).append(conflict)
    return Verdict.of(_surest(of_rival, len(candidates)) for of_rival in by_rival.values())


def _surest(conflicts: Sequence[Conflict], rule_count: int) -> Conflict:
    surest = min(conflicts, key=lambda conflict: conflict.certainty is not Certainty.CERTAIN)
    agreed = len(conflicts) == rule_count and len({conflict.certainty for conflict in conflicts}) == 1
    return surest if agreed else _as_possible(surest, _BY_RELEASE)


def _as_possible(conflict: Conflict, reason: str) -> Conflict:
    """Return a conflict as no more than possible."""
    if conflict.certainty is Certainty.POSSIBLE:
        return conflict
    return replace(conflict, certainty=Certainty.POSSIBLE, reason=reason)


def _conflict(
    ours: ConcurrentOperation, rival: ConcurrentOperation, rules: Rules, present: Present
) -> Conflict | None:
    if rival.instant.time == ours.instant.time:
        return None
    if ours.inflight_ms is None and rival.operation_type == "CLUSTER" and not rival.instant.completed:
        return Conflict(rival, Certainty.POSSIBLE, frozenset(), _REFUSES_UPDATES)
    saw_rival = was_seen(ours, rival, bucketed=rules.strategy is Strategy.BUCKET_INDEX)
    counts = rules.counts(ours, rival, saw_rival)
    if counts is False:
        return None
    if saw_rival:  # then we may overwrite what it made
        present = Present(present.file_groups | rival.file_groups - rival.replaced, present.complete)
    shared = _shared(ours, rival, rules.strategy, present.file_groups)
    if not rival.live:
        dead = _EXPIRED if rival.has_heartbeat else _NO_HEARTBEAT
        return Conflict(rival, Certainty.POSSIBLE, shared, dead) if shared else None
    if shared and counts:
        sure = Conflict(rival, Certainty.CERTAIN, shared, _reason(rival))
        return _as_possible(sure, _BUILT_ON) if saw_rival else sure
    doubt = _doubt(ours, rival, rules, present)
    overwritten = any(ours.overwrites_partition(partition) for partition, _ in rival.file_groups)
    if shared or (counts and saw_rival is None and overwritten):
        doubt = _LOG_COMPACTION if rival.operation_type == "LOG_COMPACT" else _BETWEEN
    return Conflict(rival, Certainty.POSSIBLE, shared, doubt) if doubt else None


def was_seen(
    ours: ConcurrentOperation, rival: ConcurrentOperation, *, bucketed: bool = False
) -> bool | None:
    """Return whether ``rival`` was completed when ``ours`` took its comparison point.

    :param bucketed: whether the table is known to have a bucket index.
    :returns: ``None`` if the metadata does not show it.
    """
    if not rival.instant.completed:
        return False
    completion = rival.instant.completion_stamp
    if completion is not None and completion <= ours.instant.time:
        return True
    if is_before(rival.completed_ms, ours.requested_ms):
        return True
    if is_before(ours.inflight_ms, rival.completed_ms):
        return False
    if bucketed and _adds_replaced_bucket(ours, rival):
        return True
    saw_rival = _seen_by_profile(ours, rival)
    return False if saw_rival is None and rival.instant.time in ours.unseen else saw_rival


def _seen_by_profile(ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool | None:
    shared = rival.based & ours.bases.keys()
    if any(ours.bases[group] >= rival.instant.time for group in shared):
        return True
    if shared or ours.existing & rival.replaced:
        return False if ours.has_fresh_bases else None
    if ours.existing & (rival.file_groups - rival.existing):
        return True
    return None


def _adds_replaced_bucket(ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool:
    """Whether ours recreates a bucket that the rival replaced: it saw the rival."""
    made = ours.marked - ours.existing if ours.operation_type in _ROUTED else frozenset()
    return not set(map(_bucket, made)).isdisjoint(map(_bucket, rival.replaced))


def _shared(
    ours: ConcurrentOperation,
    rival: ConcurrentOperation,
    strategy: Strategy,
    present: frozenset[FileGroupId],
) -> frozenset[FileGroupId]:
    present = present | ours.existing | rival.existing
    mine, theirs = _touched(ours, present), _touched(rival, present)
    if strategy is not Strategy.BUCKET_INDEX:
        return mine & theirs
    buckets = set(map(_bucket, mine)) & set(map(_bucket, theirs))
    return frozenset(group for group in mine | theirs if _bucket(group) in buckets)


def _touched(operation: ConcurrentOperation, present: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
    if operation.instant.completed:
        return operation.file_groups
    replaced = (group for group in present if operation.overwrites_partition(group[0]))
    return operation.file_groups.union(replaced)


def _bucket(group: FileGroupId) -> tuple[str, str]:
    # Hudi 1.2.0, BucketIdentifier: the first eight characters of a file id are its bucket's number.
    return group[0], group[1][:8]


def _doubt(
    ours: ConcurrentOperation, rival: ConcurrentOperation, rules: Rules, present: Present
) -> str | None:
    for operation in (ours, rival):
        if operation.may_touch_more and operation.instant.completed:
            return f"the metadata of {operation.instant.time} is damaged"
        if operation.may_touch_more:
            return f"the file groups that {operation.instant.time} will touch are not named yet"
    # A profile names no small file before the insert begins to write there.
    if rules.writing and _may_share_small_file(ours, rival):
        if rival.instant.completed:
            return "our new records may still go to a small file that it wrote"
        return "both may still add new records to the same small file"
    if not present.complete and overwrites_meet(ours, rival):
        return "the file groups that exist in the overwritten partitions are not known"
    return None


def _may_share_small_file(ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool:
    return any(
        write.operation_type in _ROUTED
        and write.adds_to & ({p for p, _ in other.existing} | other.adds_to)
        for write, other in ((ours, rival), (rival, ours))
    )


def overwrites_meet(ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool:
    """Whether one overwrites what the other may touch, so that existing files matter."""
    return any(
        write.overwrites_table
        or write.overwrites & ({p for p, _ in other.file_groups} | other.overwrites)
        for write, other in ((ours, rival), (rival, ours))
    )


def _reason(rival: ConcurrentOperation) -> str:
    if rival.instant.completed:
        return "it completed after our comparison point and touched the same file groups"
    if rival.is_table_service:
        return "its plan covers file groups that we touch"
    return "both touch the same file groups: the one that commits second loses"


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
    return Verdict.of(_early_conflict(ours, rival, detection) for rival in checked)


def _early_conflict(
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


class Outlook(StrEnum):
    """What a pending write can still become."""

    DEAD = "dead"
    """No process continues it: it commits nothing, and no write loses to it."""
    LOSES = "loses"
    """Hudi refuses its commit, whatever the other pending writes do."""
    CONTESTED = "contested"
    """It commits only if it does so before the other pending writes of its contest."""
    OPEN = "open"
    """Nothing certain keeps it from committing."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A pending write with its outlook.

    :param verdict: without dead rivals; a dead write has none.
    :param contest: the requested times of the writes of which at most one commits, itself among them;
        empty unless it is contested.
    """

    write: ConcurrentOperation
    outlook: Outlook
    verdict: Verdict
    contest: frozenset[str] = frozenset()


def prospects(judged: Iterable[tuple[ConcurrentOperation, Verdict]], now_ms: int) -> list[Prospect]:
    """Return the prospects of all pending writes, in the same order.

    :param judged: each pending write with the verdict on it.
    """
    all_prospects = [_prospect(write, verdict, now_ms) for write, verdict in judged]
    contests = _contests(
        [prospect for prospect in all_prospects if prospect.outlook is Outlook.CONTESTED]
    )
    return [
        replace(prospect, contest=contests.get(prospect.write.instant.time, frozenset()))
        for prospect in all_prospects
    ]


def must_lose(judged: Sequence[Prospect]) -> int:
    """Return how many of the living writes Hudi refuses at least."""
    lost = sum(prospect.outlook is Outlook.LOSES for prospect in judged)
    return lost + sum(
        len(contest) - 1 for contest in {prospect.contest for prospect in judged if prospect.contest}
    )


def is_dead(write: ConcurrentOperation, now_ms: int) -> bool:
    """Whether no process continues a pending write.

    Without a heartbeat it may be a single writer that commits without a check, if its files are young.
    """
    if write.live or write.instant.completed:
        return False
    reached_ms = max(write.requested_ms or 0, write.inflight_ms or 0)
    return write.has_heartbeat or now_ms - reached_ms >= _DEAD_AFTER_MS


def _prospect(write: ConcurrentOperation, verdict: Verdict, now_ms: int) -> Prospect:
    if is_dead(write, now_ms):
        nothing = Verdict(Certainty.NONE, rolled_back_by=verdict.rolled_back_by)
        return Prospect(write, Outlook.DEAD, nothing)
    among = verdict.among(lambda rival: not is_dead(rival, now_ms))
    rivals = [conflict.rival for conflict in among.conflicts if conflict.certainty is Certainty.CERTAIN]
    if among.rolled_back_by or any(
        rival.instant.completed or rival.is_table_service for rival in rivals
    ):
        outlook = Outlook.LOSES
    else:
        outlook = Outlook.CONTESTED if rivals else Outlook.OPEN
    return Prospect(write, outlook, among)


def _contests(contested: Sequence[Prospect]) -> dict[str, frozenset[str]]:
    """Return for each contested write the largest set of writes that share one file group with it."""
    touching = defaultdict[FileGroupId, set[str]](set)
    for prospect in contested:
        for conflict in prospect.verdict.conflicts:
            if conflict.certainty is Certainty.CERTAIN:
                for group in conflict.file_groups:
                    touching[group].add(prospect.write.instant.time)
    contests: dict[str, frozenset[str]] = {}
    for times in sorted(touching.values(), key=len, reverse=True):
        rest = frozenset(times - contests.keys())
        if len(rest) > 1:
            contests.update(dict.fromkeys(rest, rest))
    return contests
