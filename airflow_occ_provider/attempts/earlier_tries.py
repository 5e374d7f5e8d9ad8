"""Continues or settles what earlier tries of a task run left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.attempt import log_retired_heartbeats
from airflow_occ_provider.attempts.commit import Commit, earlier_commit, run_again, unrecorded_commit
from airflow_occ_provider.attempts.driver import end_earlier
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.outcome import MEANINGS, Outcome
from airflow_occ_provider.attempts.own_writes import Commits, is_service
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.settle import (
    failed_after_commit,
    retire_heartbeats,
    several_commits,
)
from airflow_occ_provider.attempts.submission import remove_leftovers
from airflow_occ_provider.attempts.submitter import Ended, Handle, Submitter, Unseen
from airflow_occ_provider.attempts.waits import Fence, Settled, Wait, WriteStates, judge
from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    DataLossError,
    FenceError,
    HistoryUnreadableError,
    WorkerLostError,
)
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.address import is_one_table
from airflow_occ_provider.storage.table import HudiTable

_FENCES = 3
_CLOCKS_DIFFER_MS = 3_600_000
_OF_A_DONE_JOB = {"", *(outcome for outcome, meaning in MEANINGS.items() if meaning.error is None)}


@dataclass(frozen=True, slots=True)
class EarlierTries:
    """The attempts of a task run that may still reach the table.

    :param clean: has Hudi roll back the failed writes of a table.
    :param signed: whether the job's commits are signed.
    :param commits: how many commits the job makes.
    :param signature: of this try, by whose labels a commit is found if the run's record is missing.
    :param due_ms: epoch milliseconds, by Airflow's clock, before which no try has run; 0 if unknown.
    """

    run: Journal
    open_table: Callable[[str], HudiTable]
    rule: HeartbeatRule
    _: KW_ONLY
    clean: Callable[[str], None]
    log: Any
    signed: bool = True
    commits: Commits = Commits.ONE
    signature: Signature | None = None
    due_ms: int = 0

    def commit(self, table: str, digest: str) -> Commit | None:
        """Return what an earlier try committed, if that is the whole work.

        It is if its files are there, and its driver is known to have ended well. If not, a job of many
        commits is to run again, and the try of any other fails.

        :raises FailedAfterCommitError: if the job makes one commit, and its driver failed after it, or
            was not seen to end.
        :raises MisconfigurationError: if the job makes one commit, and its driver made several.
        :raises CommitStateUnknownError: if it is unknown whether there is a commit, or whether it is
            this try's work.
        :raises DataLossError: if files of the commit are gone; nothing is rolled back here.
        """
        record = self.run.record
        if self.signature and self.commits is Commits.ONE and record.was_lost:
            self._refuse_unrecorded(self.open_table(table), self.signature)
        if record.since is None:
            return None
        try:
            commit = earlier_commit(
                self.open_table(table),
                record.identities,
                record.since,
                record.instants_in(table),
                must_exist=record.has_seen(table),
                signed=self.signed,
            )
        except DataLossError as loss:
            if not any(
                loss.instant in attempt.instants and not attempt.end for attempt in record.attempts
            ):
                raise
            raise DataLossError(
                f"{loss.message}. The lazy clean that fenced the driver of an earlier try did it, while "
                "that driver committed",
                instant=loss.instant,
                remedy=run_again(loss.statement),
                statement=loss.statement,
            ) from loss
        if commit is None or (self.commits is Commits.MANY and not self._is_done(commit)):
            return None
        max_tries = self.run.now.max_tries
        cleared = any(attempt.max_tries != max_tries for attempt in record.own_attempts)
        if cleared and record.digest != digest:
            raise CommitStateUnknownError(
                f"commit {commit.instant.time} of this task run was made with another application, "
                "other arguments or another table than this try has: whether it is this try's work "
                "is unknown",
                remedy="if it is, mark the task as success; if not, delete hudi_write from the "
                "task's state store and clear the task",
            )
        if self.commits is Commits.ONE:
            self._refuse_unproven(commit, table)
        self.log.info("Commit %s of an earlier try is in the table: done.", commit.instant)
        return commit

    def _is_done(self, commit: Commit) -> bool:
        """Whether the attempt that made a commit, or a later one, has done the work."""
        attempts = self.run.record.own_attempts
        author = self._author(commit)
        later = attempts[attempts.index(author) :] if author else attempts
        if any(attempt.ended_well and attempt.outcome in _OF_A_DONE_JOB for attempt in later):
            return True
        self.log.info(
            "Commit %s of an earlier try is in the table, and its driver is not known to have ended "
            "well: the job runs again, since commits='many'.",
            commit.instant,
        )
        return False

    def _refuse_unproven(self, commit: Commit, table: str) -> None:
        """Refuse a commit whose driver may have left work undone, or has made others."""
        author = self._author(commit)
        time = commit.instant.time
        if author is None or author.ended_well is None:
            raise failed_after_commit(
                f"commit {time} is in the table, but the end of the driver that made it was not seen"
            )
        if not author.ended_well:
            raise failed_after_commit(
                f"commit {time} of try {author.try_number} is in the table, but its driver failed after "
                f"it ({author.end or 'as its runner reported'})"
            )
        if author.outcome == Outcome.ROLLED_BACK:
            raise failed_after_commit(
                f"commit {time} of try {author.try_number} is in the table, but other completed writes "
                "of its driver were taken back"
            )
        if author.outcome or len(author.instants) < 2:
            return  # its own try has told it
        snapshot = self.open_table(table).snapshot()
        instants = filter(None, map(snapshot.timeline.find, author.instants))
        writes = [
            write.time for write in instants if write.completed and not is_service(snapshot, write)
        ]
        if len(writes) > 1:
            raise several_commits(", ".join(writes))

    def _author(self, commit: Commit) -> AttemptRecord | None:
        """Return the attempt that made a commit, if it is recorded."""
        signed = Signature.from_extra(commit.metadata.extra)
        attempts = self.run.record.own_attempts
        by_instant = (attempt for attempt in attempts if commit.instant.time in attempt.instants)
        by_try = (
            attempt
            for attempt in reversed(attempts)
            if signed and attempt.try_number == signed.try_number
        )
        return next(by_instant, None) or next(by_try, None)

    def _refuse_unrecorded(self, table: HudiTable, signature: Signature) -> None:
        """Refuse to write again if the run has committed, and its record is missing."""
        due_ms = max(self.due_ms - _CLOCKS_DIFFER_MS, 0)
        try:
            commit = unrecorded_commit(table.snapshot(missing_ok=True), signature, due_ms)
        except HistoryUnreadableError as error:
            # Mostly no earlier try came to its driver: without pyarrow all retries would fail for it.
            self.log.warning(
                "Airflow has no record of an earlier try of this task run. Whether one made a commit "
                "that was archived since is unknown: %s. Remedy: %s.",
                error.message,
                error.remedy,
            )
            return
        label = Signature.from_extra(commit.metadata.extra) if commit else None
        if commit is None or label is None:
            return
        self.run.adopt(label.identity)
        raise CommitStateUnknownError(
            f"commit state unknown: try {label.try_number} of this task run made commit "
            f"{commit.instant.time}, and Airflow has no record of it: whether the task was cleared to "
            "write again is unknown",
            remedy="if the commit is this task's work, mark the task as success; to write again, clear "
            "the task once more, or trigger a new DAG run",
        )

    def close(self) -> None:
        """Settle them all: the task run's commit is in the table."""
        for attempt in self.run.record.unsettled:
            if attempt.end:
                table = self.open_table(attempt.table)
                pending = {write.time for write in table.snapshot().timeline.pending_writes()}
                self._retire(attempt, table, [time for time in attempt.instants if time in pending])
            self.run.settle(attempt)

    def settle(self) -> Wait | None:
        """Settle them one by one; return the wait that is needed, if any.

        :raises FenceError: if an instant cannot be fenced.
        """
        for attempt in self.run.record.unsettled:
            wait = self._settle(attempt)
            if wait:
                waiting = self.run.wait(wait.reason, wait.instants, now_ms())
                seconds = (now_ms() - waiting.since_ms) / 1000
                self.log.info("Waiting (%.0f s so far): %s", seconds, wait.reason)
                return wait
        return None

    def _settle(self, attempt: AttemptRecord) -> Wait | None:
        table = self.open_table(attempt.table)
        for fences_left in reversed(range(_FENCES)):
            state = WriteStates.at(table.snapshot(missing_ok=not attempt.instants), now_ms(), self.rule)
            step = judge(attempt, state, self.run.record.waiting)
            if isinstance(step, Wait):
                return step
            if isinstance(step, Settled):
                self._retire(attempt, table, step.ghosts)
                self.run.settle(attempt)
                return None
            if fences_left:
                self._roll_back(attempt, step)
        raise FenceError(
            f"what try {attempt.try_number} left is still pending after {_FENCES - 1} lazy cleans",
            remedy="CALL rollback_to_instant for the instants that the log names, and clear the task",
        )

    def _roll_back(self, attempt: AttemptRecord, fence: Fence) -> None:
        self.log.info(
            "The end of the driver of try %s (%s) was not seen, and %s has stopped beating: Hudi's lazy "
            "clean is asked to roll it back, so that the driver cannot commit it any more.",
            attempt.try_number,
            attempt.driver,
            ", ".join(fence.instants),
        )
        self.clean(attempt.table)

    def _retire(self, attempt: AttemptRecord, table: HudiTable, ghosts: Sequence[str]) -> None:
        retired = retire_heartbeats(table, ghosts)
        log_retired_heartbeats(self.log, f"Try {attempt.try_number}", retired)


def end_earlier_drivers(run: Journal, submitter_of: Callable[[Handle], Submitter], log: Any) -> None:
    """End the visible drivers of earlier tries, and record their end.

    One that was not recorded was not granted, and does nothing.

    :param submitter_of: returns what follows a driver.
    :raises FenceError: if a driver does not end.
    """
    for attempt in run.record.unsettled:
        handle = attempt.driver
        if handle is None:
            remove_leftovers(attempt.identity)
            continue
        submitter = submitter_of(handle)
        state = submitter.poll(handle)
        was_running = end_earlier(submitter, handle, f"try {attempt.try_number}")
        remove_leftovers(attempt.identity)
        # One that is revoked and silent may still run: its end is not proven.
        if isinstance(submitter.poll(handle), Ended) and not attempt.end:
            end = f"ended by try {run.now.number}" if was_running else "found ended"
            log.info("The driver of try %s, %s, was %s.", attempt.try_number, handle, end)
            well = attempt.ended_well
            if isinstance(state, Ended) and state.exit_code is not None and not was_running:
                well = state.exit_code == 0 if well is None else well
            run.keep(replace(attempt, end=end, ended_ms=now_ms(), ended_well=well))


def refuse_deaths(run: Journal, budget: int) -> None:
    """Refuse another driver if too many tries died together with their worker.

    No retry policy was asked about those tries.
    """
    died = run.record.unexplained(run.now)
    if len(died) > budget:
        raise WorkerLostError(
            f"the worker died together with its driver in tries {', '.join(map(str, died))}: the "
            f"job is not run again ({budget} such retries are allowed)",
            remedy="look what ended the worker (out of memory, an eviction, a lost node), give it "
            "more memory than the driver takes, and clear the task; without Airflow, start the program "
            "with another run_id",
        )


def begun_attempt(
    run: Journal, submitter: Callable[[Handle], Submitter], table: str, digest: str, log: Any
) -> AttemptRecord | None:
    """Return the attempt whose driver does this try's work, running or ended.

    The driver of a task that the user cleared is not continued.

    :param submitter: returns what follows a driver.
    :param table: base path of the table that the task writes.
    :param digest: of the work of this try.
    """
    record = run.record
    attempts = [
        attempt
        for attempt in record.unsettled
        if attempt.identity == record.identity and is_one_table(attempt.table, table)
    ]
    if record.since is None or any(attempt.max_tries != run.now.max_tries for attempt in attempts):
        return None  # the user cleared the task, which ends its driver
    if record.digest != digest and all(attempt.try_number != run.now.number for attempt in attempts):
        return None  # within a try only the rendering can differ, such as a time in the arguments
    for attempt in reversed(attempts):
        if (
            attempt.driver
            and not attempt.end
            and not attempt.outcome  # else it was followed to an end that proves nothing
            and _is_followed(submitter(attempt.driver), attempt.driver)
        ):
            log.info("Following %s, which try %s started.", attempt.driver, attempt.try_number)
            return attempt
    return None


def _is_followed(follower: Submitter, driver: Handle) -> bool:
    state = follower.poll(driver)
    return follower.outlives_task and (not isinstance(state, Unseen) or state.is_away)
