"""Settle an attempt: determine its outcome by the table after its driver ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from airflow_occ_provider import errors
from airflow_occ_provider.attempts.commit import Commit, Loss, audit_all, find_commit, find_recorded
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import (
    MEANINGS,
    Failure,
    LogReading,
    Outcome,
    Stop,
    sentence,
)
from airflow_occ_provider.attempts.own_writes import Commits, OwnWrites, taken_back
from airflow_occ_provider.attempts.record import NOTHING_BEFORE, TableBefore
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_NONE = OwnWrites()


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
    :param own_writes: the writes of the attempt's driver.
    :param ended_well: whether the job ran to its end.
    :param commits: how many commits the job makes.
    :param earlier: the commit of an earlier attempt of the task run, if this one has none.
    :param loss: data of the commit that is gone.
    :param unreadable: why the table could not be read.
    :param failure: the explanation for people, if it has more facts than this settlement.
    :param overruled: why early stop ended the driver, although the write that it named is committed.
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
    own_writes: OwnWrites = _NONE
    ended_well: bool = True
    commits: Commits = Commits.ONE
    earlier: Commit | None = None
    loss: Loss | None = None
    failure: Failure | None = None
    overruled: Stop | None = None

    def error(self) -> errors.OccError | None:
        """Return the attempt's error; ``None`` if it did its work."""
        meaning = MEANINGS[self.outcome]
        if self.unreadable:
            return self.unreadable.as_commit_state_unknown()
        if self.outcome is Outcome.UNKNOWN:
            return errors.CommitStateUnknownError(
                f"commit state unknown: {' '.join(self.lines)}", remedy=meaning.remedy
            )
        if self.loss:
            return self.loss.error()
        if self.outcome is Outcome.COMMITTED:
            return self._error_after_commit()
        if meaning.error is None:
            return None
        is_taken_back = self.outcome is Outcome.ROLLED_BACK
        return meaning.error(
            sentence(self.failure or self.described()),
            outcome=self.outcome,
            remedy=self.advice or meaning.remedy,
            committed=bool(self.commit or (self.own_writes.committed and not is_taken_back)),
        )

    def _error_after_commit(self) -> errors.OccError | None:
        """Return why the commit is not the work of the job, if it is not."""
        if not (self.ended_well or self.overruled):
            cause = f": {' '.join(self.lines[1:])}" if self.lines[1:] else ""
            return failed_after_commit(
                f"the job failed (exit code {self.exit_code}) after its commit {self.instant}{cause}",
                self.own_writes,
                advice=_CLEAN_FAILED if self._is_of_clean(cause) else "",
            )
        if self.commits is Commits.ONE and self.own_writes.several:
            return several_commits(self.own_writes.several)
        return None

    def _is_of_clean(self, cause: str) -> bool:
        """Whether a cause names a file of a clean, and nothing of a further write of the job."""
        match, writes = _OF_CLEAN.search(cause), self.own_writes
        is_own = match and match["beat"] in (*writes.committed, *writes.unfinished)
        return bool(match) and not (is_own or writes.several)

    def described(self) -> Failure:
        """Return the failed attempt as far as this settlement describes it."""
        by_hudi = (line for line in self.lines if "org.apache.hudi." in line)
        by_jvm = (line for line in self.lines if line.startswith(": "))
        cause = self.cause or next(by_hudi, None) or next(by_jvm, None) or next(iter(self.lines), None)
        rival = self.rival if MEANINGS[self.outcome].has_rival else None
        return Failure(self.outcome, self.instant, rival, cause=cause or f"exit code {self.exit_code}")


_AGAIN = (
    "set commits='many', if keys or a checkpoint make it safe that a retry runs the whole job again,"
)
# Files of a clean, which Hudi runs after each commit, and of the heartbeats that it reads.
_OF_CLEAN = re.compile(
    r"/\.hoodie/(?:(?:timeline/)?\d{14,20}(?:_\d+)?\.clean(?:\.requested|\.inflight)?\b"
    r"|\.heartbeat/(?P<beat>\d{14,20}))"
)
_CLEAN_FAILED = (
    "it looks as if only Hudi's clean after the commit failed, beside that of another writer: give all "
    "writers hoodie.clean.automatic=false, and let one HudiCleanOperator clean the table; "
)
_UNCHECKED = (
    "Hudi's check for conflicts did not run before the commit: the job changed its concurrency mode"
)


def failed_after_commit(
    what: str, own_writes: OwnWrites = _NONE, *, advice: str = ""
) -> errors.FailedAfterCommitError:
    """Return the error of a job that may have left work undone after its commit.

    :param what: happened to the job.
    :param own_writes: the writes of its driver.
    :param advice: if more is known than that.
    """
    others = f" (it wrote {own_writes.several})" if own_writes.several else ""
    return errors.FailedAfterCommitError(
        f"{what}{others}; the commit stays in the table",
        outcome=Outcome.COMMITTED,
        remedy=f"{advice}if nothing is missing, mark the task as success; else {_AGAIN} and clear "
        "the task",
        committed=True,
    )


def several_commits(writes: str) -> errors.MisconfigurationError:
    """Return the error of a job that wrote more than once, and was to commit once.

    :param writes: all writes of its driver.
    """
    return errors.MisconfigurationError(
        f"commits='one', and the job wrote several times: {writes}; what is committed stays",
        outcome=Outcome.COMMITTED,
        remedy="mark the task as success if nothing is missing; then write each by a task of its own, "
        f"or {_AGAIN}",
        committed=True,
    )


def settle(
    table: HudiTable,
    signature: Signature,
    log: DriverLog,
    exit_code: int,
    *,
    before: TableBefore = NOTHING_BEFORE,
    stop: Stop | None = None,
    rule: HeartbeatRule = DEFAULT_RULE,
    log_is_read: bool = True,
    commits: Commits = Commits.ONE,
) -> Settlement:
    """Determine the outcome of an attempt whose driver was seen to end.

    Without a commit, a guard's reason to stop the driver decides, whatever the exit code; a failure that
    the runner reported overrules exit code 0; and exit code 0 proves nothing if the log does not show
    that the driver was protected. The heartbeats of instants that it left unfinished are removed, so
    that no writer has to wait for them.

    :param signature: signs the attempt's commits.
    :param log: the driver's whole log.
    :param exit_code: the driver's, negative for a signal.
    :param before: what the table had before the first attempt of the task run.
    :param stop: why a guard ended it, if one did; a commit that landed before still counts.
    :param rule: by which other writers judge the driver's heartbeats.
    :param log_is_read: whether the log was read to its end, so that what it lacks did not happen.
    :param commits: how many commits the job makes.
    """
    try:
        snapshot = table.snapshot(missing_ok=not log.own_instants)
        commit = find_commit(snapshot, signature.identity, before, log.own_instants)
        if commit is None and not signature.is_written:
            commit = find_recorded(snapshot, log.own_instants, before)
        earlier = None
        if commits is Commits.MANY and commit and not _is_of_attempt(commit, signature, log):
            commit, earlier = None, commit
        own_writes = OwnWrites.of(snapshot, log)
        made = _own_commits(snapshot, commit, own_writes, commits)
        loss = audit_all(table, snapshot, made) if made else None
        taken = taken_back(snapshot, log, stop, rule) if commit is None else None
    except errors.TableUnreadableError as error:
        return Settlement(
            Outcome.UNKNOWN, exit_code=exit_code, unreadable=error, ended_well=False, commits=commits
        )
    timeline = snapshot.timeline
    pending = {instant.time for instant in timeline.pending_writes()}
    ghosts = [time for time in log.own_instants if time in pending]
    retired = retire_heartbeats(table, ghosts)
    ended = _Ended(log, log.exit_code(exit_code, is_read=log_is_read), own_writes, stop, log_is_read)
    ended_well = log.ended_well(exit_code, is_read=log_is_read, was_stopped=stop is not None)
    writes = [write for time in log.own_instants if (write := timeline.find(time)) and write.is_write]
    is_overruled = (
        commit and stop and stop.instant == commit.instant.time and not own_writes.last_unfinished
    )
    if commit is None:
        judged = ended.unsigned(writes) or ended.vanished() or ended.without_commit()
    else:
        is_done = (
            ended_well and not own_writes.last_unfinished
            if commits is Commits.MANY
            else bool(ended_well or is_overruled)
        )
        judged = ended.unchecked(made) or ended.with_commit(commit, commits, is_done=is_done)
    if commit and loss:
        judged = _Judged(Outcome.ROLLED_BACK, (str(loss),), loss.instant)
    elif taken and judged.outcome in (Outcome.NOTHING_WRITTEN, Outcome.JOB_ERROR, Outcome.ROLLED_BACK):
        judged = _Judged(taken.outcome, taken.lines, judged.instant)
    elif commit and own_writes.taken_back and (ended_well or judged.outcome is Outcome.COMMITTED):
        judged = _of_taken_back(own_writes.taken_back)
    is_committed = judged.outcome is Outcome.COMMITTED
    instant = commit.instant.time if commit and is_committed else judged.instant
    return Settlement(
        judged.outcome,
        instant=instant,
        rival=judged.rival or (log.instants.rival_of(instant) if instant else None),
        lines=judged.lines,
        cause=judged.cause,
        advice=judged.advice,
        commit=commit,
        exit_code=exit_code or ended.code,
        retired=retired,
        own_writes=own_writes,
        ended_well=ended_well,
        commits=commits,
        earlier=earlier,
        loss=loss,
        overruled=stop if is_committed and is_overruled and not ended_well else None,
    )


class _Judged(NamedTuple):
    outcome: Outcome
    lines: tuple[str, ...]
    instant: str | None = None
    rival: str | None = None
    cause: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a driver ended.

    :param code: its exit code, as the runner's report corrects it.
    """

    log: DriverLog
    code: int
    own_writes: OwnWrites
    stop: Stop | None
    log_is_read: bool

    def with_commit(self, commit: Commit, commits: Commits, *, is_done: bool) -> _Judged:
        """Return the outcome of an attempt whose commit is in the table."""
        line = str(commit.instant)
        if is_done:
            return _Judged(Outcome.COMMITTED, (line,))
        failure = self.without_commit()
        if commits is Commits.MANY:
            return failure
        return _Judged(Outcome.COMMITTED, (line, *failure.lines))

    def without_commit(self) -> _Judged:
        """Return the outcome of an attempt with a write that failed, or without any."""
        reading = self.log.read(self.code).without_commit
        conflicts = self.log.instants.conflicts
        instant = reading.instant
        if not (reading.rival and instant in conflicts):
            instant = self.own_writes.last_unfinished or next(
                reversed(self.own_writes.unfinished), instant
            )
        if self.stop:
            stop = self.stop
            return _Judged(stop.outcome, (stop.line,), stop.instant or instant, stop.rival)
        loser = next(filter(self.log.instants.has_lost, reversed(self.own_writes.unfinished)), None)
        if loser and reading.outcome in (Outcome.JOB_ERROR, Outcome.UNKNOWN):
            return _Judged(Outcome.COMMIT_CONFLICT, (conflicts[loser],), loser)
        if self.code:
            lines = self._lines(reading)
            return _Judged(reading.outcome, lines, instant, reading.rival, reading.cause, reading.advice)
        gone = self.own_writes.unfinished or self.own_writes.unplaced
        if gone:
            return _Judged(
                Outcome.JOB_ERROR, (f"the job ended well but left {gone[-1]} unfinished",), gone[-1]
            )
        unproven = self.log.unproven(self.code, is_read=self.log_is_read)
        if unproven:
            return _Judged(Outcome.MISCONFIGURATION, (unproven,))
        return _Judged(Outcome.NOTHING_WRITTEN, ("the table has no new instant of this attempt",))

    def unsigned(self, writes: Sequence[Instant]) -> _Judged | None:
        """Return the outcome of a driver that completed a write without its signature, if it did.

        :param writes: its writes in the table's timeline.
        """
        completed = [write for write in writes if write.completed]
        signless = next((write for write in completed if write.time in self.own_writes.committed), None)
        if signless is None:
            return None
        line = f"{signless} was completed by this driver but is not signed"
        return _Judged(Outcome.UNKNOWN, (line,), signless.time)

    def vanished(self) -> _Judged | None:
        """Return the outcome of a driver that ended well, and whose write the table does not show.

        The archived history was searched too. So another process has taken the write back, or has
        removed the table.
        """
        if self.code or self.stop or not self.own_writes.committed:
            return None
        time = self.own_writes.committed[-1]
        line = f"the driver completed {time}, and the table does not show it any more"
        return _Judged(Outcome.ROLLED_BACK, (line,), time)

    def unchecked(self, commits: Iterable[tuple[Instant, CommitMetadata]]) -> _Judged | None:
        """Return the outcome of commits of which one had no check for conflicts, if it is so.

        The missing record of the check proves that only between the record of the request and that of
        the commit: a job, or its site, may configure log4j anew in the middle of a write, and nothing is
        recorded until the runner notices it, which it reports; and a process that continues an attempt
        may read the end of the log only.

        :param commits: of the attempt's work.
        """
        instants = self.log.instants
        # Under lazy cleaning, ``single_writer`` in a job's own code leaves no other trace (1.2.0).
        for commit, _ in commits:
            is_recorded = commit.time in instants.times and instants.has_completed(commit.time)
            if is_recorded and not instants.was_checked(commit.time):
                return _Judged(Outcome.MISCONFIGURATION, (_UNCHECKED, str(commit)), commit.time)
        return None

    def _lines(self, reading: LogReading) -> tuple[str, ...]:
        if self.log.end is None and self.log.reports_end and reading.outcome is Outcome.KILLED:
            return (*reading.lines, "the driver ended before its runner could report an end")
        return reading.lines


def _own_commits(
    snapshot: Snapshot, commit: Commit | None, own_writes: OwnWrites, commits: Commits
) -> list[tuple[Instant, CommitMetadata]]:
    """Return the commits of the attempt's work with what they wrote, to be audited.

    Several commits of a job that makes one are an error in any case.
    """
    made = {commit.instant: commit.metadata} if commit else {}
    others = own_writes.committed if commits is Commits.MANY else ()
    for instant in filter(None, map(snapshot.timeline.find, others)):
        metadata = snapshot.reader.commit(instant)
        if metadata and instant not in made:
            made[instant] = metadata
    return list(made.items())


def _of_taken_back(writes: Iterable[tuple[str, Instant]]) -> _Judged:
    """Return the outcome of a driver of whose completed writes others took some back."""
    lines = tuple(
        f"{rollback.action} {rollback.time} took back {time}, which the driver had completed"
        for time, rollback in writes
    )
    return _Judged(Outcome.ROLLED_BACK, lines)


def _is_of_attempt(commit: Commit, signature: Signature, log: DriverLog) -> bool:
    """Whether a commit of the task run is this attempt's, and not an earlier one's."""
    if commit.instant.time in log.own_instants:
        return True
    signed = Signature.from_extra(commit.metadata.extra)
    return signed is not None and signed.try_number == signature.try_number


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
