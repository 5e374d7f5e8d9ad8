"""What the timeline shows: unchecked commits, clocks, damage, and hasty rollbacks."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, is_before
from airflow_occ_provider.hudi.conflict.strategy import duplications
from airflow_occ_provider.hudi.doctor.finding import (
    ROUNDED_OFF_MS,
    Finding,
    Severity,
    is_original,
    is_plausible,
    some,
    zone_and_lag_ms,
)
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant, elapsed_ms, naive_ms
from airflow_occ_provider.hudi.format.timeline import Timeline, collisions
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, HeartbeatRule

_HOUR_MS = 3_600_000
_COMPLETED_WRITE = (
    "Hudi's readers and writers fail at it: restore the file from an earlier version of the object or a "
    "backup; if there is none, end the writers and delete the file: its instant is pending again, and "
    "the next clean rolls it back; then run the job that wrote it again"
)
_COMPLETED = (
    "restore the file from an earlier version of the object or a backup; if there is none, end the "
    "writers and delete the file: its instant is pending again, and Hudi's next run continues it"
)
_PENDING = (
    "Hudi cannot continue it: if no driver of the table runs, delete the files of this instant in the "
    "timeline, and let Hudi plan it again"
)
_CHECK_ALL = (
    "give every writer of the table the same lock and OPTIMISTIC_CONCURRENCY_CONTROL (airflow hudi conf "
    "prints the options), then write the rows of those that completed first again"
)
_ONE_LOCK = "give every writer of the table the same lock provider, address, base path and lock key"
_RIGHT_AFTER_MS = 10_000
_AT_ONCE_MS = 2_000
_PATTERN = 3  # so many such rollbacks are not made by hand
_REMEDY = (
    "give that writer hoodie.cleaner.policy.failed.writes=LAZY, OPTIMISTIC_CONCURRENCY_CONTROL and the "
    "lock of the others (airflow hudi conf prints the options)"
)


def time_zones(operations: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield a finding if writers took their times in several zones by turns.

    One change for good is none: a timeline that was switched to UTC. Nor is an hour more and, later, an
    hour less: summer time.
    """
    zones = [(zone_ms, time) for zone_ms, _, time in _seen(operations)]
    changes = sum(before[0] != after[0] for before, after in pairwise(zones))
    offsets_ms = {zone_ms for zone_ms, _ in zones}
    is_summer = len(offsets_ms) == 2 and max(offsets_ms) - min(offsets_ms) == _HOUR_MS
    if changes < (3 if is_summer else 2):
        return
    by_zone = {zone: [time for other, time in zones if other == zone] for zone in offsets_ms}
    shown = "; ".join(f"UTC{_hours(zone)}: {some(times)}" for zone, times in sorted(by_zone.items()))
    yield Finding(
        "time_zones",
        Severity.ERROR,
        tuple(time for zone, time in zones if zone != zones[0][0]),
        f"instants were requested in {len(by_zone)} time zones by turns ({shown}): Hudi compares these "
        "times as text, and treats those of an eastern zone as later",
        "give all drivers the same zone (-Duser.timezone=UTC), or create the table with "
        "hoodie.table.timeline.timezone=UTC",
    )


def fast_clocks(operations: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield a finding if requested files are older than the times in their names."""
    ahead = {time: -lag_ms for _, lag_ms, time in _seen(operations)}
    fast = {time: by_ms for time, by_ms in ahead.items() if by_ms > ROUNDED_OFF_MS}
    if fast:
        yield Finding(
            "clock_skew",
            Severity.WARNING,
            tuple(sorted(fast)),
            f"the clocks of {len(fast)} of {len(ahead)} writers were ahead of the storage's by up to "
            f"{max(fast.values()) / 1000:.1f} s ({some(fast)}): heartbeats are judged by both clocks",
            "keep the clocks of the drivers and of the storage with NTP",
        )


def _seen(operations: Sequence[ConcurrentOperation]) -> list[tuple[int, int, str]]:
    """Return zone, lag and time of each write with original files, in the order of the requests.

    Not of table services: their requested file is a plan, which takes its time.
    """
    writes = (write for write in operations if not write.is_table_service and is_original(write))
    ordered = sorted(writes, key=lambda write: write.requested_ms or 0)
    measures = ((zone_and_lag_ms(write), write.instant.time) for write in ordered)
    return [(*zone_and_lag, time) for zone_and_lag, time in measures if zone_and_lag]


def _hours(zone_ms: int) -> str:
    hours, minutes = divmod(abs(zone_ms) // 60_000, 60)
    return f"{'-' if zone_ms < 0 else '+'}{hours:02}:{minutes:02}"


def damaged_files(faults: Mapping[Instant, str]) -> Iterator[Finding]:
    """Yield a finding for each instant with a damaged file.

    :param faults: the file's name and what is wrong with it, of each such instant.
    """
    for instant, fault in sorted(faults.items()):
        if instant.completed:
            severity, remedy = Severity.ERROR, _COMPLETED_WRITE if instant.is_write else _COMPLETED
        else:
            severity, remedy = Severity.WARNING, _PENDING
        yield Finding("damaged_file", severity, (instant.time,), f"{instant}: {fault}", remedy)


def unchecked_commits(writes: Sequence[ConcurrentOperation]) -> Iterator[Finding]:
    """Yield the completed writes that Hudi's commit check has to refuse.

    Another one completed between its inflight file and its completion, and wrote the same file groups:
    it overwrote what it had not read (Hudi 1.2.0,
    ``SimpleConcurrentFileWritesConflictResolutionStrategy``).
    Table services are not checked by default.

    :param writes: the completed writes of a table without non-blocking concurrency control.
    """
    plausible = [write for write in writes if not write.is_table_service and is_plausible(write)]
    ordered = sorted(plausible, key=lambda write: write.completed_ms or 0)
    ended = [write.completed_ms or 0 for write in ordered]
    for place, later in enumerate(ordered):
        if not is_original(later):
            continue
        beside = ordered[bisect_right(ended, later.inflight_ms or 0) : place]
        before = [write for write in beside if is_before(write.completed_ms, later.completed_ms)]
        shared = {write.instant.time: write.file_groups & later.file_groups for write in before}
        overwritten = {time: groups for time, groups in shared.items() if groups}
        if overwritten:
            yield _unchecked(later.instant.time, overwritten)


def _unchecked(later: str, earlier: Mapping[str, frozenset[FileGroupId]]) -> Finding:
    groups = frozenset[FileGroupId]().union(*earlier.values())
    named = some(f"{partition}/{file_id}".lstrip("/") for partition, file_id in groups)
    return Finding(
        "unchecked_commit",
        Severity.ERROR,
        tuple(sorted((later, *earlier))),
        f"{some(earlier)} completed while {later} was writing the same file groups ({named}), and "
        f"{later} completed too: it was not checked for conflicts, and may have overwritten their rows",
        _CHECK_ALL,
    )


def possible_duplicates(writes: Sequence[ConcurrentOperation], *, has_keys: bool) -> Iterator[Finding]:
    """Yield the overlapping writes after which rows may be there twice.

    Hudi's check compares file groups, and these writes have none in common: both created theirs in one
    partition, or both overwrote one that was empty.

    :param writes: the completed writes of a table without non-blocking concurrency control.
    :param has_keys: whether the table has record keys.
    """
    pairs = defaultdict[str, list[tuple[str, str, tuple[str, ...]]]](list)
    for earlier, later in _overlapping(writes):
        for duplication in duplications(later, [earlier], has_keys=has_keys):
            times = earlier.instant.time, later.instant.time
            pairs[duplication.reason].append((*times, duplication.partitions))
    for reason, overlaps in sorted(pairs.items()):
        shown = some(
            f"{first} and {second} in {some(where) or '/'}" for first, second, where in overlaps
        )
        yield Finding(
            "possible_duplicates",
            Severity.WARNING,
            tuple(sorted({time for first, second, _ in overlaps for time in (first, second)})),
            f"writes overlapped in time ({shown}): {reason}. Hudi allows it, since they share no file "
            "group",
            "look for keys with two rows in these partitions, and write them again; give such tasks a "
            "scope, or isolation='serializable', so that they are queued",
        )


def _overlapping(
    writes: Sequence[ConcurrentOperation],
) -> Iterator[tuple[ConcurrentOperation, ConcurrentOperation]]:
    """Yield the pairs of writes of which neither saw the other, the one that completed first first.

    By the times of their files, or by those in their names if the files were copied.
    """
    of_data = [write for write in writes if not write.is_table_service]
    by_files = [
        (write.completed_ms or 0, write.inflight_ms or 0, write)
        for write in of_data
        if is_original(write)
    ]
    by_names = [
        (ended_ms, begun_ms + 2 * ROUNDED_OFF_MS, write)
        for write in of_data
        if (begun_ms := naive_ms(write.instant.time)) is not None
        and (ended_ms := naive_ms(write.instant.completion_stamp or "")) is not None
    ]
    originals = {write.instant.time for *_, write in by_files}
    for spans in (by_files, by_names):
        ordered = sorted(spans, key=lambda span: span[:2])
        ended = [span[0] for span in ordered]
        for place, (_, begun_ms, later) in enumerate(ordered):
            for *_, earlier in ordered[bisect_right(ended, begun_ms) : place]:
                both = {earlier.instant.time, later.instant.time} <= originals
                if spans is by_files or not both:
                    yield earlier, later


def completion_times(instants: Iterable[Instant]) -> Iterator[Finding]:
    """Yield completion times that no common lock can have given.

    Since table version 8 Hudi takes them under its lock, so that each is greater than all earlier ones
    (Hudi 1.2.0, ``SkewAdjustingTimeGenerator``). An upgrade takes them from files instead, in whole
    seconds on some storages.
    """
    stamped = sorted(
        (instant for instant in instants if instant.completion_stamp),
        key=lambda instant: instant.completion_stamp or "",
    )
    for stamp, equal in groupby(stamped, key=lambda instant: instant.completion_stamp or ""):
        times = tuple(instant.time for instant in equal)
        if len(set(times)) > 1 and not stamp.endswith("000"):
            yield Finding(
                "equal_completion_times",
                Severity.ERROR,
                times,
                f"{' and '.join(times)} both completed at {stamp}: they did not hold the same lock",
                _ONE_LOCK,
            )
    for instant in stamped:
        took_ms = elapsed_ms(instant.time, instant.completion_stamp or "")
        if took_ms is not None and took_ms < -ROUNDED_OFF_MS:
            yield Finding(
                "backward_completion_time",
                Severity.ERROR,
                (instant.time,),
                f"{instant.time} completed at {instant.completion_stamp}, before it was requested: a "
                "clock was set back, or two processes of the write are in different time zones",
                "set the zone of the table's timeline to UTC (hoodie.table.timeline.timezone), or give "
                "all drivers one zone, and keep their clocks with NTP",
            )


def colliding_instants(instants: Iterable[Instant]) -> Iterator[Finding]:
    """Yield the requested times that two actions share.

    A savepoint has that of its commit.
    """
    for equal in collisions(instants):
        actions = [instant.requested_action for instant in equal]
        time = equal[0].time
        yield Finding(
            "colliding_instants",
            Severity.ERROR,
            (time,),
            f"{' and '.join(actions)} were both requested at {time}: two processes took the same "
            "time without a common lock",
            _ONE_LOCK,
        )


@dataclass(frozen=True, slots=True)
class SeenRollback:
    """A rollback in the timeline, with the times of its files.

    :param victims: requested times of the instants that it names.
    """

    operation: ConcurrentOperation
    victims: frozenset[str]

    @property
    def instant(self) -> Instant:
        """The rollback."""
        return self.operation.instant


def eager_rollbacks(
    timeline: Timeline,
    rollbacks: Iterable[SeenRollback],
    pending: Mapping[Instant, Heartbeat],
    services: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield the rollbacks whose victims were alive: they completed, or tick now.

    :param pending: the heartbeats of the pending writes.
    :param services: requested times of completed table services: Hudi rolls their first run back, and
        completes them under the same time.
    """
    beats = {instant.time: beat for instant, beat in pending.items()}
    findings = list[Finding]()
    for rollback in rollbacks:
        for victim in sorted(rollback.victims):
            instant = timeline.find(victim)
            alive = ""
            done = instant is not None and instant.completed and instant.is_write
            if done and victim not in services:
                alive = "has completed"
            elif victim in beats and beats[victim].live:
                alive = "renews its heartbeat"
            if alive:
                evidence = f"{rollback.instant} rolls {victim} back, which {alive}: its writer was alive"
                findings.append(_finding(Severity.ERROR, rollback, victim, evidence))
    if len(findings) < _PATTERN:
        yield from findings
    else:
        times = {time for finding in findings for time in finding.instants}
        evidence = f"{len(findings)} rollbacks took live writers back; the last: {findings[-1].evidence}"
        yield Finding("eager_cleaner", Severity.ERROR, tuple(sorted(times)), evidence, _REMEDY)


def hasty_rollbacks(
    timeline: Timeline,
    rollbacks: Iterable[SeenRollback],
    writes: Sequence[ConcurrentOperation],
    rule: HeartbeatRule,
) -> Iterator[Finding]:
    """Yield the rollbacks of young victims that came right before another write.

    A writer with the policy EAGER requests them as it starts (Hudi 1.2.0,
    ``BaseHoodieWriteClient.startCommit``), while a lazy clean runs right after a commit. The rollback of
    a dead writer whose heartbeat was removed may be as early.

    :param writes: the writes of the timeline with the times of their files.
    :param rule: the heartbeat rule of the writers.
    """
    findings = list[Finding]()
    times = list[str]()
    for rollback in rollbacks:
        culprit = _started_by(rollback, writes)
        for victim in sorted(rollback.victims) if culprit else ():
            age_ms = elapsed_ms(victim, rollback.instant.time)
            if age_ms is None or timeline.find(victim) or not 0 <= age_ms < rule.tolerance_ms:
                continue
            if not _follows_a_commit(rollback, age_ms, writes):
                evidence = (
                    f"{rollback.instant} rolled {victim} back {age_ms / 1000:.0f} s after its request, "
                    f"before its heartbeat could expire; the write {culprit} was requested at once "
                    "(a rollback by hand, and the restart of a table's only writer, look the same)"
                )
                findings.append(_finding(Severity.NOTICE, rollback, victim, evidence))
                times += [victim, rollback.instant.time]
    if len(findings) < _PATTERN:
        yield from findings
        return
    yield Finding(
        "eager_cleaner",
        Severity.ERROR,
        tuple(sorted(set(times))),
        f"{len(findings)} times a write was rolled back before its heartbeat could expire, and the next "
        f"write was requested at once; the last time, {findings[-1].evidence}. Writers that roll each "
        "other back at every start do that, or a single writer that dies again and again",
        _REMEDY,
    )


def _finding(severity: Severity, rollback: SeenRollback, victim: str, evidence: str) -> Finding:
    instants = (victim, rollback.instant.time)
    return Finding("eager_cleaner", severity, instants, evidence, _REMEDY)


def _started_by(rollback: SeenRollback, writes: Iterable[ConcurrentOperation]) -> str | None:
    """Return the write that was requested right after a rollback had completed, and went on."""
    ended_ms = rollback.operation.completed_ms
    if ended_ms is None:
        return None
    went_on = (write for write in writes if write.inflight_ms is not None)
    began = (
        (write.requested_ms, write.instant.time) for write in went_on if write.requested_ms is not None
    )
    soon = (request for request in began if 0 <= request[0] - ended_ms <= _AT_ONCE_MS)
    return min(soon, default=(0, None))[1]


def _follows_a_commit(
    rollback: SeenRollback, age_ms: int, writes: Iterable[ConcurrentOperation]
) -> bool:
    """Whether it came right after the commit of a write that ran beside its victim."""
    requested_ms = rollback.operation.requested_ms
    if requested_ms is None:
        return True  # nothing shows the contrary
    since_ms = requested_ms - min(age_ms, _RIGHT_AFTER_MS)
    return any(write.completed_ms and since_ms <= write.completed_ms <= requested_ms for write in writes)
