"""Settle an attempt: what the table says it came to, once its driver has ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_occ_provider import errors
from airflow_occ_provider.hudi.instant import Instant
from airflow_occ_provider.hudi.metadata import CommitMetadata
from airflow_occ_provider.hudi.timeline import Timeline
from airflow_occ_provider.jobs.identity import Signature
from airflow_occ_provider.jobs.outcome import REMEDIES, UNCHECKED, DriverLog, Outcome, Reading
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


@dataclass(frozen=True, slots=True)
class Settlement:
    """What an attempt came to, by the table.

    :param outcome: the verdict.
    :param instant: requested time of the attempt's own write, where it is known.
    :param rival: the instant it conflicted with, where Hudi named it.
    :param lines: the lines of the driver's log, or our own words, that decided.
    :param commit: the attempt's commit, if it is in the table.
    :param exit_code: the driver's.
    :param retired: own unfinished instants whose heartbeats were removed.
    :param unfinished: own writes that the driver began and did not complete.
    :param unreadable: why the table could not be asked.
    """

    outcome: Outcome
    instant: str | None = None
    rival: str | None = None
    lines: tuple[str, ...] = ()
    commit: Commit | None = None
    exit_code: int | None = None
    retired: tuple[str, ...] = ()
    unreadable: errors.TableUnreadableError | None = None
    unfinished: tuple[str, ...] = ()

    def error(self) -> errors.OccError | None:
        """Return the error that the attempt deserves; ``None`` where it did its work."""
        if self.unreadable:  # may be tried again: a try asks the table first
            return errors.TableUnreadableError(
                f"commit state unknown: {self.unreadable.message}", remedy=self.unreadable.remedy
            )
        if self.outcome is Outcome.UNKNOWN:
            return errors.CommitStateUnknownError(
                f"commit state unknown: {' '.join(self.lines)}", remedy=REMEDIES[Outcome.UNKNOWN]
            )
        clean = self.exit_code in (0, None)
        if self.outcome is Outcome.NOTHING_WRITTEN or (self.outcome is Outcome.COMMITTED and clean):
            return None
        if self.outcome is Outcome.COMMITTED:
            return errors.JobError(
                f"the job failed (exit code {self.exit_code}) after its commit {self.instant} "
                f"had landed{self._later()}; the next try will find the commit and write nothing",
                outcome=self.outcome,
                committed=True,
            )
        return _ERRORS[self.outcome](
            self._summary(),
            outcome=self.outcome,
            remedy=REMEDIES[self.outcome],
            committed=self.commit is not None,
        )

    def _later(self) -> str:
        return f" but before {', '.join(self.unfinished)} had" if self.unfinished else ""

    def _summary(self) -> str:
        who = f" at instant {self.instant}" if self.instant else ""
        against = f" against {self.rival}" if self.rival else ""
        telling = next((line for line in self.lines if "org.apache.hudi." in line), None)
        line = telling or (self.lines[0] if self.lines else f"exit code {self.exit_code}")
        return f"{self.outcome}{who}{against}: {line.removeprefix(': ')}"


_ERRORS: dict[Outcome, Callable[..., errors.AttemptError]] = {
    Outcome.EARLY_CONFLICT: errors.WriteConflictError,
    Outcome.COMMIT_CONFLICT: errors.WriteConflictError,
    Outcome.CLUSTERING_CONFLICT: errors.WriteConflictError,
    Outcome.LOCK_TIMEOUT: errors.LockTimeoutError,
    Outcome.HEARTBEAT_EXPIRED: errors.HeartbeatExpiredError,
    Outcome.KILLED: errors.DriverKilledError,
    Outcome.ROLLED_BACK: errors.RolledBackError,
    Outcome.MISCONFIGURATION: errors.MisconfigurationError,
    Outcome.JOB_ERROR: errors.JobError,
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


def settle(
    table: HudiTable, signature: Signature, log: DriverLog, exit_code: int, *, retire: bool = True
) -> Settlement:
    """Ask the table what became of an attempt whose driver has been seen to end.

    :param signature: what the attempt signed its commits with.
    :param log: the driver's whole log.
    :param exit_code: the driver's, negative for a signal.
    :param retire: whether to remove the heartbeats of own instants that the driver left
        unfinished, so that nobody has to wait for them. Only for a driver that has ended.
    """
    try:
        timeline = table.timeline()
        commit = find_commit(table, signature.identity, signature.latest_instant, timeline)
    except errors.TableUnreadableError as error:
        return Settlement(Outcome.UNKNOWN, exit_code=exit_code, unreadable=error)
    retired = _retire_ghosts(table, timeline, log) if retire else ()
    own = [found for time in log.own_instants if (found := timeline.find(time)) and found.is_write]
    reading = log.read(exit_code, committed=False)
    outcome, lines = _judge(commit, own, reading, log, exit_code)
    instant = commit.instant.time if commit else (own[-1].time if own else reading.instant)
    return Settlement(
        outcome,
        instant=instant,
        rival=reading.rival or (log.rival_of(instant) if instant else None),
        lines=lines,
        commit=commit,
        exit_code=exit_code,
        retired=retired,
        unfinished=tuple(one.time for one in own if not one.completed),
    )


def find_commit(
    table: HudiTable, identity: str, since: str = "", timeline: Timeline | None = None
) -> Commit | None:
    """Find the write commit that carries an identity in the active timeline, youngest first.

    Commits of table services copy the labels of the write that ran them, and do not count.

    :param identity: uuid of the task run.
    :param since: requested time of a completed write that is older than the commit, or empty.
    :param timeline: the table's timeline, if it was just read.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    listed = timeline if timeline is not None else table.timeline()
    for instant in reversed(listed.completed_writes()):
        if since and not _may_be_younger(instant.time, since):
            return None
        metadata = table.commit(instant)
        if metadata is None or metadata.is_table_service:
            continue
        signature = Signature.from_extra(metadata.extra)
        if signature and signature.identity == identity:
            return Commit(instant, metadata)
    return None


def _judge(
    commit: Commit | None, own: list[Instant], reading: Reading, log: DriverLog, exit_code: int
) -> tuple[Outcome, tuple[str, ...]]:
    if commit:
        if reading.conflict_checked is False and commit.instant.time in reading.own_instants:
            return Outcome.MISCONFIGURATION, (UNCHECKED, str(commit.instant))
        return Outcome.COMMITTED, (str(commit.instant),)
    unsigned = next((instant for instant in own if instant.completed), None)
    if unsigned:
        return Outcome.UNKNOWN, (f"{unsigned} was completed by this driver but is not signed",)
    lost = next((line for instant in own if (line := log.conflict_of(instant.time))), None)
    if lost and not reading.died and reading.outcome in (Outcome.JOB_ERROR, Outcome.UNKNOWN):
        return Outcome.COMMIT_CONFLICT, (lost,)
    return _judge_uncommitted(own, reading, exit_code)


def _judge_uncommitted(
    own: list[Instant], reading: Reading, exit_code: int
) -> tuple[Outcome, tuple[str, ...]]:
    if exit_code:
        return reading.outcome, reading.lines
    if own:
        return Outcome.JOB_ERROR, (f"the job ended well but left {own[-1]} unfinished",)
    elsewhere = ", ".join(reading.own_instants)
    hint = f"; the driver wrote {elsewhere} elsewhere: is this the job's table?" if elsewhere else ""
    return Outcome.NOTHING_WRITTEN, (f"the table has no new instant of this attempt{hint}",)


def _retire_ghosts(table: HudiTable, timeline: Timeline, log: DriverLog) -> tuple[str, ...]:
    pending = {instant.time for instant in timeline.pending_writes()}
    retired = []
    for time in log.own_instants:
        # One that stays only makes the next attempt wait for its expiry.
        with suppress(errors.TableUnreadableError):
            if time in pending and table.retire_heartbeat(time):
                retired.append(time)
    return tuple(retired)


def _may_be_younger(time: str, since: str) -> bool:
    try:
        own, other = (datetime.fromisoformat(f"{text[:8]}T{text[8:14]}") for text in (time, since))
    except ValueError:
        return True
    return own >= other - _ZONE_SLACK
