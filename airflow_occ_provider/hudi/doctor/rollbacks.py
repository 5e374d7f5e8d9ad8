"""Rollbacks of writers that were alive: the work of an eager cleaner."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.doctor.moments import elapsed_ms
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, HeartbeatRule

_RIGHT_AFTER_MS = 10_000
_AT_ONCE_MS = 2_000
_PATTERN = 3  # so many such rollbacks are not made by hand
_REMEDY = (
    "give that writer hoodie.cleaner.policy.failed.writes=LAZY, OPTIMISTIC_CONCURRENCY_CONTROL and the "
    "lock of the others (airflow hudi conf prints the options)"
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
