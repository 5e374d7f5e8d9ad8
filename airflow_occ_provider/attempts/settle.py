"""Settle an attempt: determine its outcome by the table after its driver ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from airflow_occ_provider import errors
from airflow_occ_provider.attempts.audit import Loss, audit
from airflow_occ_provider.attempts.commit import Commit, find_commit, find_recorded
from airflow_occ_provider.attempts.failure import Failure, sentence
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import (
    HAVE_RIVALS,
    REMEDIES,
    UNCHECKED,
    Outcome,
    Reading,
    Stop,
    was_killed,
)
from airflow_occ_provider.attempts.record_parts import NOTHING_BEFORE, TableBefore
from airflow_occ_provider.attempts.taken_back import taken_back
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of an attempt by the table.

    :param instant: requested time of the attempt's own write, if it is known.
    :param rival: the instant it conflicted with, if Hudi named it.
    :param lines: the decisive lines, of the driver's log or this provider's own.
    :param cause: the line among them that decided, if one did.
    :param advice: what to do, if the lines say more than the outcome does.
    :param commit: the attempt's commit, if it is in the table.
    :param exit_code: the driver's.
    :param retired: own unfinished instants whose heartbeats were removed.
    :param unfinished: own writes that the driver began and did not complete.
    :param loss: data of the commit that is gone.
    :param unreadable: why the table could not be read.
    :param failure: the explanation for people, if it has more facts than this settlement.
    :param overruled: why early stop ended the driver, although its commit is in the table.
    """

    outcome: Outcome
    instant: str | None = None
    rival: str | None = None
    lines: tuple[str, ...] = ()
    cause: str = ""
    advice: str = ""
    commit: Commit | None = None
    exit_code: int | None = None
    retired: tuple[str, ...] = ()
    unreadable: errors.TableUnreadableError | None = None
    unfinished: tuple[str, ...] = ()
    loss: Loss | None = None
    failure: Failure | None = None
    overruled: Stop | None = None

    def error(self) -> errors.OccError | None:
        """Return the attempt's error; ``None`` if it did its work."""
        if self.unreadable:
            return self.unreadable.as_commit_state_unknown()
        if self.outcome is Outcome.UNKNOWN:
            return errors.CommitStateUnknownError(
                f"commit state unknown: {' '.join(self.lines)}", remedy=REMEDIES[Outcome.UNKNOWN]
            )
        if self.loss:
            return self.loss.error()
        clean = self.exit_code in (0, None) or (self.overruled and not self.unfinished)
        if self.outcome is Outcome.NOTHING_WRITTEN or (self.outcome is Outcome.COMMITTED and clean):
            return None
        if self.outcome is Outcome.COMMITTED:
            killed = was_killed(self.exit_code or 0)
            later = f" but before {', '.join(self.unfinished)} had" if self.unfinished else ""
            return (errors.DriverKilledError if killed else errors.JobError)(
                f"the job failed (exit code {self.exit_code}) after its commit {self.instant} "
                f"had landed{later}; the next try will find the commit and write nothing",
                outcome=self.outcome,
                committed=True,
            )
        return _ERRORS[self.outcome](
            sentence(self.failure or self.described()),
            outcome=self.outcome,
            remedy=self.advice or REMEDIES[self.outcome],
            committed=self.commit is not None,
        )

    def described(self) -> Failure:
        """Return the failed attempt as far as this settlement describes it."""
        by_hudi = (line for line in self.lines if "org.apache.hudi." in line)
        by_jvm = (line for line in self.lines if line.startswith(": "))
        cause = self.cause or next(by_hudi, None) or next(by_jvm, None) or next(iter(self.lines), None)
        rival = self.rival if self.outcome in HAVE_RIVALS else None
        return Failure(self.outcome, self.instant, rival, cause=cause or f"exit code {self.exit_code}")


_LOST = (Outcome.COMMIT_CONFLICT, Outcome.YIELDED)
_ERRORS: dict[Outcome, Callable[..., errors.AttemptError]] = {
    Outcome.EARLY_CONFLICT: errors.WriteConflictError,
    Outcome.COMMIT_CONFLICT: errors.WriteConflictError,
    Outcome.YIELDED: errors.WriteConflictError,
    Outcome.CLUSTERING_CONFLICT: errors.WriteConflictError,
    Outcome.LOCK_TIMEOUT: errors.LockTimeoutError,
    Outcome.HEARTBEAT_EXPIRED: errors.HeartbeatExpiredError,
    Outcome.KILLED: errors.DriverKilledError,
    Outcome.ENDED: errors.TaskEndedError,
    Outcome.TIMED_OUT: errors.ExecutionTimeoutError,
    Outcome.NOT_STARTED: errors.DriverNotStartedError,
    Outcome.ROLLED_BACK: errors.RolledBackError,
    Outcome.MISCONFIGURATION: errors.MisconfigurationError,
    Outcome.HUDI_ERROR: errors.HudiError,
    Outcome.JOB_ERROR: errors.JobError,
}


_UNREPORTED = "the log is not the driver's, as if it ran in client mode on another machine"


def settle(
    table: HudiTable,
    signature: Signature,
    log: DriverLog,
    exit_code: int,
    *,
    before: TableBefore = NOTHING_BEFORE,
    stop: Stop | None = None,
    retire: bool = True,
    needs_report: bool = False,
    rule: HeartbeatRule = DEFAULT_RULE,
) -> Settlement:
    """Determine the outcome of an attempt whose driver was seen to end.

    :param signature: signs the attempt's commits.
    :param log: the driver's whole log.
    :param exit_code: the driver's, negative for a signal.
    :param before: what the table had before the first attempt of the task run.
    :param stop: why a guard ended it, if one did; a commit that landed before still counts.
    :param retire: whether to remove the heartbeats of own instants that the driver left
        unfinished, so that no writer has to wait for them; only for a driver that has ended.
    :param needs_report: whether the log of a driver that ended well has to show that it was protected:
        in client mode, YARN's application is not the driver, and succeeds whatever becomes of it.
    :param rule: by which other writers judge the driver's heartbeats.
    """
    try:
        snapshot = table.snapshot(missing_ok=not log.own_instants)
        commit = find_commit(snapshot, signature.identity, before, log.own_instants)
        if commit is None and not signature.is_written:
            commit = find_recorded(snapshot, log.own_instants, before)
        loss = audit(table, snapshot, commit.instant, commit.metadata) if commit else None
        taken = taken_back(snapshot, log, stop, rule) if commit is None else None
    except errors.TableUnreadableError as error:
        return Settlement(Outcome.UNKNOWN, exit_code=exit_code, unreadable=error)
    timeline = snapshot.timeline
    pending = {instant.time for instant in timeline.pending_writes()}
    ghosts = [time for time in log.own_instants if time in pending]
    retired = retire_heartbeats(table, ghosts) if retire else ()
    own = [found for time in log.own_instants if (found := timeline.find(time)) and found.is_write]
    reading = log.read(exit_code).without_commit
    outcome, lines = _judge(commit, own, reading, log, exit_code)
    if needs_report and outcome is Outcome.NOTHING_WRITTEN and not log.protected:
        outcome, lines = Outcome.MISCONFIGURATION, (_UNREPORTED,)
    rival = reading.rival
    if stop and outcome is Outcome.KILLED:
        outcome, lines, rival = stop.outcome, (stop.line,), stop.rival
    if loss:
        outcome, lines = Outcome.ROLLED_BACK, (str(loss),)
    elif taken and outcome in (Outcome.NOTHING_WRITTEN, Outcome.JOB_ERROR, Outcome.ROLLED_BACK):
        outcome, lines = taken.outcome, taken.lines
    instant = commit.instant.time if commit else (own[-1].time if own else reading.instant)
    return Settlement(
        outcome,
        instant=instant,
        rival=rival or (log.instants.rival_of(instant) if instant else None),
        lines=lines,
        cause=reading.cause if lines == reading.lines else "",
        advice=reading.advice if lines == reading.lines else "",
        commit=commit,
        exit_code=exit_code,
        retired=retired,
        unfinished=tuple(one.time for one in own if not one.completed),
        loss=loss,
        overruled=stop if outcome is Outcome.COMMITTED and _was_mistaken(stop, exit_code) else None,
    )


def _was_mistaken(stop: Stop | None, exit_code: int) -> bool:
    """Whether early stop ended a driver whose write was not lost, given that it is committed."""
    return bool(stop and stop.outcome in _LOST and was_killed(exit_code))


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
    lost = next((line for instant in own if (line := log.instants.conflict_of(instant.time))), None)
    if lost and reading.outcome in (Outcome.JOB_ERROR, Outcome.UNKNOWN):
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


def retire_heartbeats(table: HudiTable, ghosts: Iterable[str]) -> tuple[str, ...]:
    """Remove the heartbeats of unfinished instants whose driver has ended.

    :param ghosts: their requested times.
    :return: those that had a heartbeat.
    """
    retired = []
    for time in ghosts:
        # A heartbeat that stays only makes the next attempt wait for its expiry.
        with suppress(errors.TableUnreadableError):
            if table.retire_heartbeat(time):
                retired.append(time)
    return tuple(retired)
