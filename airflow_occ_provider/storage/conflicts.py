"""The verdicts on a table's pending writes, with as few reads as possible."""

from __future__ import annotations

import time
import time as clock
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, completed_since_request
from airflow_occ_provider.hudi.conflict.strategy import (
    Duplication,
    Rules,
    Strategy,
    duplications,
    infer_strategy,
    is_non_blocking,
    possible_releases,
)
from airflow_occ_provider.hudi.conflict.verdict import (
    NO_OVERWRITES,
    Certainty,
    Conflict,
    Present,
    Prospect,
    Verdict,
    judge_by_any,
    judge_early,
    overwrites_meet,
    prospects,
    was_seen,
)
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, WRITE_ACTIONS, Instant
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Operations, Snapshot
from airflow_occ_provider.storage.table import HudiTable

_COMPARED = WRITE_ACTIONS | TABLE_SERVICE_ACTIONS
_ROLLING_BACK = frozenset({"rollback", "restore"})


@dataclass(frozen=True, slots=True)
class Setup:
    """The known configuration of a table's writers; the rest is inferred.

    :param strategy: the conflict resolution strategy; by default the one of the table's index.
    :param release: major and minor number of their Hudi; by default inferred from their files.
    :param early: the strategy of early conflict detection, if that is to be judged too.
    :param check_commits: whether early detection also checks completed commits.
    :param writing: whether pending writers may still begin files; ``False`` if a driver's log shows
        that only the commit is left.
    :param unseen: requested times of the writes that completed after the comparison point of the write
        that is judged, as far as its driver's log and earlier listings show them.
    """

    strategy: Strategy | None = None
    release: tuple[int, int] | None = None
    early: EarlyDetection = EarlyDetection.OFF
    check_commits: bool = True
    writing: bool = True
    unseen: frozenset[str] = frozenset()


DEFAULT_SETUP = Setup()
"""Nothing is known: all is inferred from the table."""


def verdicts(
    table: HudiTable,
    snapshot: Snapshot,
    setup: Setup = DEFAULT_SETUP,
    *,
    only: str | None = None,
    now_ms: int | None = None,
) -> dict[str, Verdict]:
    """Return the verdict on each pending write, or on one, by requested time.

    If a heartbeat is missing or has expired, the timeline is listed again: a rival that completed in
    between has removed its heartbeat, and is not dead. A dead rival is only a possible one.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    return judged_writes(operations_of(table, snapshot, now_ms), setup, only)


def judged_writes(
    operations: Operations, setup: Setup = DEFAULT_SETUP, only: str | None = None
) -> dict[str, Verdict]:
    """Return the verdict on each pending write, or on one, as ``verdicts`` does."""
    timeline = operations.snapshot.timeline
    judged = [timeline.find(only)] if only else timeline.pending_writes()
    pending = [instant for instant in judged if instant and not instant.completed]
    rivals = {ours: _rivals(operations, ours, setup) for ours in pending}
    operations.read({*pending, *(rival for of_write in rivals.values() for rival in of_write)})
    rollbacks = _rollbacks(operations, pending)
    return {
        ours.time: replace(
            _judge(operations, ours, others, setup), rolled_back_by=rollbacks.get(ours.time)
        )
        for ours, others in rivals.items()
    }


def possible_winners(snapshot: Snapshot, ours: Instant) -> tuple[Instant, ...]:
    """Return the writes that may have completed since a write began.

    Nothing is read for that.
    """
    done = snapshot.timeline.completed_writes()
    return tuple(winner for winner in done if _may_be_rival(winner, ours))


def lost_conflict(
    snapshot: Snapshot, ours: Instant, rivals: Sequence[Instant], setup: Setup = DEFAULT_SETUP
) -> Conflict | None:
    """Return the certain conflict of a pending write with a completed rival.

    It is certain that the write has not seen the rival: this completed after the write's profile was
    written, or the profile names what the rival has replaced, or the setup says so. A pending rival is
    not read: it may fail.

    :param rivals: completed writes.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    operations = Operations(snapshot, {})
    later = _counted(operations, ours, rivals, setup)
    if not later:
        return None
    # An overwrite replaces the file groups that it has listed, maybe without those made since.
    made = {group for rival in operations.read(later) for group in rival.file_groups - rival.existing}
    conflicts = _judge(operations, ours, later, setup).conflicts
    certain = (conflict for conflict in conflicts if conflict.certainty is Certainty.CERTAIN)
    return next((conflict for conflict in certain if not conflict.file_groups <= made), None)


def planned_before(snapshot: Snapshot, ours: Instant, pending: Iterable[Instant]) -> tuple[Instant, ...]:
    """Return the pending writes whose workload profiles were written before one's own.

    Those that were written at the same time are in the order of their requested times. The timeline's
    listing shows it; nothing is read.
    """
    planned = [
        (times.inflight_ms, instant.time, instant)
        for instant, times in snapshot.last_times({ours, *pending}).items()
        if times.inflight_ms is not None
    ]
    before = [instant for _, _, instant in sorted(planned, key=lambda entry: entry[:2])]
    return tuple(before[: before.index(ours)]) if ours in before else ()


def earlier_overlap(
    snapshot: Snapshot,
    ours: Instant,
    planned: Sequence[Instant],
    choices: Collection[str],
    setup: Setup = DEFAULT_SETUP,
) -> Conflict | None:
    """Return the overlap of a pending write with an earlier one that goes on.

    Of two writes that overlap, the one whose profile was written first goes on. One that may itself lose
    is no reason: to a completed write, or to a pending one that was planned before it.

    :param planned: the pending writes with a live writer, as of ``planned_before``.
    :param choices: the requested times of those among them that may be a reason.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    operations = Operations(snapshot, {})
    for number, earlier in enumerate(planned):
        if earlier.time not in choices:
            continue
        conflict = _judge(operations, ours, [earlier], setup).certain_conflict
        if conflict is None:
            continue
        rivals = _counted(
            operations, earlier, [*possible_winners(snapshot, earlier), *planned[:number]], setup
        )
        if _judge(operations, earlier, rivals, setup).certainty is Certainty.NONE:
            return conflict
    return None


def operations_of(table: HudiTable, snapshot: Snapshot, now_ms: int | None) -> Operations:
    """Return a table's operations, with its heartbeats as in ``verdicts``."""
    at_ms = now_ms or round(clock.time() * 1000)
    ticks = snapshot.heartbeats()
    begun = [instant.time for instant in snapshot.timeline if not instant.completed]
    judged = {time: DEFAULT_RULE.judge(ticks.get(time), at_ms) for time in {*begun, *ticks}}
    if all(judged[time].live for time in begun):
        return Operations(snapshot, judged)
    return Operations(table.snapshot(snapshot), judged)


def _rivals(operations: Operations, ours: Instant, setup: Setup) -> list[Instant]:
    """Return the instants that may be rivals, by the timeline's listing."""
    others = [instant for instant in operations.snapshot.timeline if _may_be_rival(instant, ours)]
    return _counted(operations, ours, others, setup)


def _counted(
    operations: Operations, ours: Instant, others: Sequence[Instant], setup: Setup
) -> list[Instant]:
    """Return those that were not completed when a write began; only the listing is looked at."""
    outlines = operations.outlines([ours, *others])
    return [other for other in others if _may_count(outlines[ours], outlines[other], setup)]


def _may_be_rival(other: Instant, ours: Instant) -> bool:
    if other.time == ours.time or other.action not in _COMPARED:
        return False
    stamp = other.completion_stamp
    return stamp is None or stamp > ours.time


def _may_count(ours: ConcurrentOperation, other: ConcurrentOperation, setup: Setup) -> bool:
    if not other.instant.completed:
        return True
    if setup.strategy is Strategy.PREFER_WRITER:
        is_earlier = completed_since_request(ours, other) is False
        return not is_earlier or setup.early is not EarlyDetection.OFF
    return not was_seen(ours, other)


def _judge(operations: Operations, instant: Instant, others: Sequence[Instant], setup: Setup) -> Verdict:
    (read,) = operations.read([instant])
    rivals = operations.read(others)
    ours = replace(read, unseen=setup.unseen)
    candidates = _candidates(operations.snapshot, ours, rivals, setup)
    overwrites = any(overwrites_meet(ours, rival) for rival in rivals)
    present = _present(operations, ours) if overwrites else NO_OVERWRITES
    verdict = replace(
        judge_by_any(ours, rivals, candidates, present),
        duplications=_duplications(operations.snapshot, ours, rivals, candidates),
    )
    if setup.early is EarlyDetection.OFF:
        return verdict
    early = judge_early(ours, rivals, setup.early, check_commits=setup.check_commits)
    surer = min(verdict.certainty, early.certainty, key=list(Certainty).index)
    return replace(verdict, certainty=surer, early=early.conflicts)


def _duplications(
    snapshot: Snapshot,
    ours: ConcurrentOperation,
    rivals: Sequence[ConcurrentOperation],
    candidates: Sequence[Rules],
) -> tuple[Duplication, ...]:
    """Return the overlaps with writes that ours has not seen, and that Hudi allows."""
    if any(rules.non_blocking for rules in candidates):
        return ()
    beside = [rival for rival in rivals if rival.live and was_seen(ours, rival) is False]
    return tuple(duplications(ours, beside, has_keys=snapshot.config.has_record_keys))


def _candidates(
    snapshot: Snapshot, ours: ConcurrentOperation, rivals: list[ConcurrentOperation], setup: Setup
) -> list[Rules]:
    version = snapshot.config.version
    strategy = setup.strategy or infer_strategy([ours, *rivals])
    releases = (setup.release,) if setup.release else possible_releases(version, ours.stat_fields)
    nonblocking = is_non_blocking(ours, snapshot.config.concurrency_mode)
    return [
        Rules(strategy, version, snapshot.config.merge_on_read, release, setup.writing, nonblocking)
        for release in releases
    ]


def _present(operations: Operations, ours: ConcurrentOperation) -> Present:
    done = operations.snapshot.timeline.completed_writes()
    outlined = {
        instant: was_seen(ours, operation) for instant, operation in operations.outlines(done).items()
    }
    commits = operations.commits(instant for instant, is_before in outlined.items() if is_before)
    unsure = operations.read(instant for instant, is_before in outlined.items() if is_before is None)
    also_before = [write for write in unsure if was_seen(ours, write)]
    done_by: list[CommitMetadata | ConcurrentOperation] = [*commits, *also_before]
    replaced = frozenset[FileGroupId]().union(*(write.replaced for write in done_by))
    written = replaced.union(*(write.file_groups for write in done_by))
    return Present(written - replaced, complete=not operations.snapshot.has_history())


def _rollbacks(operations: Operations, pending: list[Instant]) -> dict[str, Instant]:
    """Return the rollbacks that name pending instants; older ones are not read."""
    listed = [instant for instant in operations.snapshot.timeline if instant.action in _ROLLING_BACK]
    outlines = operations.outlines([*pending, *listed])
    rollbacks = [
        rollback
        for rollback in listed
        if any(_may_name(operations.snapshot, outlines[rollback], outlines[ours]) for ours in pending)
    ]
    named = map_concurrently(operations.snapshot.reader.rolled_back_times, rollbacks)
    return {time: rollback for rollback in reversed(rollbacks) for time in named[rollback]}


def _may_name(snapshot: Snapshot, rollback: ConcurrentOperation, ours: ConcurrentOperation) -> bool:
    instant = rollback.instant
    requested_ms = ours.requested_ms
    if instant.time > ours.instant.time:
        return True
    written_ms = rollback.completed_ms if instant.completed else snapshot.written_ms(instant.file_name)
    return written_ms is None or requested_ms is None or written_ms >= requested_ms


@dataclass(frozen=True, slots=True)
class Judged:
    """The pending writes and table services of a table.

    :param snapshot: the table; if a heartbeat is missing or has expired, after they were listed.
    :param pending: oldest first.
    :param heartbeats: of these, by requested time.
    :param verdicts: on the writes, by requested time.
    """

    snapshot: Snapshot
    pending: tuple[ConcurrentOperation, ...]
    heartbeats: Mapping[str, Heartbeat]
    verdicts: Mapping[str, Verdict]


def judge_all(
    table: HudiTable, snapshot: Snapshot, now_ms: int, *, with_verdicts: bool = True
) -> Judged:
    """Return all that is pending, with the verdicts on it, in one pass.

    :param with_verdicts: without them two listings are enough, and what writes touch is not read.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    operations = operations_of(table, snapshot, now_ms)
    verdicts = judged_writes(operations) if with_verdicts else {}
    actions = WRITE_ACTIONS | TABLE_SERVICE_ACTIONS
    timeline = operations.snapshot.timeline
    pending = [instant for instant in timeline if not instant.completed and instant.action in actions]
    absent = DEFAULT_RULE.judge(None, now_ms)
    beats = {instant.time: operations.heartbeats.get(instant.time, absent) for instant in pending}
    if with_verdicts:
        return Judged(operations.snapshot, tuple(operations.read(pending)), beats, verdicts)
    maybe_clusterings = [instant for instant in pending if instant.action == "replacecommit"]
    read = dict(zip(maybe_clusterings, operations.read(maybe_clusterings), strict=True))
    writes = operations.outlines(pending) | read
    return Judged(operations.snapshot, tuple(writes.values()), beats, verdicts)


def prospects_of(
    table: HudiTable, snapshot: Snapshot, setup: Setup = DEFAULT_SETUP, *, only: str | None = None
) -> list[Prospect]:
    """Return the prospects of the pending writes, oldest first, or of one.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    now_ms = round(time.time() * 1000)
    operations = operations_of(table, snapshot, now_ms)
    verdicts = judged_writes(operations, setup)
    writes = [
        instant for instant in operations.snapshot.timeline.pending_writes() if instant.time in verdicts
    ]
    judged = [(write, verdicts[write.instant.time]) for write in operations.read(writes)]
    all_prospects = prospects(judged, now_ms)
    return [prospect for prospect in all_prospects if only in (None, prospect.write.instant.time)]
