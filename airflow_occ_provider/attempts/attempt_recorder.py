"""Records a running attempt in the journal, and logs it in the task's log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.failure import brief, unrepeated
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.record import AttemptRecord, TaskRecord
from airflow_occ_provider.attempts.record_parts import NOTHING_BEFORE, TableBefore
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.attempts.survivor import dangling
from airflow_occ_provider.errors import StateStoreError
from airflow_occ_provider.storage.snapshot import Snapshot

_monotonic = time.monotonic
_ASK_AGAIN_S = 30.0


class AttemptRecorder:
    """An attempt whose driver and instants are recorded while it runs.

    The driver is recorded before it starts; one that cannot be recorded does not start. Each instant
    is recorded once the driver has requested it. A failure to record one does not end the driver: it
    is recorded later, at the latest after the driver's end.

    :param table: base path of the table that it writes.
    :param attempt: what is known of it so far, such as from earlier processes.
    """

    def __init__(
        self, run: Journal, table: str, logger: Any, attempt: AttemptRecord | None = None
    ) -> None:
        self._run = run
        self._logger = logger
        self.log = DriverLog()
        self._ask_again_at: float | None = None
        self._noted: tuple[str, ...] = ()
        self._attempt = attempt or new_attempt(run, table)

    @property
    def before(self) -> TableBefore:
        """What the table had before the first attempt of the task run."""
        return self._run.record.since or NOTHING_BEFORE

    @property
    def seconds(self) -> float:
        """The seconds for which its driver has run, its start included."""
        return ((self._attempt.ended_ms or now_ms()) - self._attempt.started_ms) / 1000

    def ended(self, exit_code: int, *, log_read: bool, was_stopped: bool = False) -> None:
        """Record that the driver's end was observed.

        :param exit_code: the driver's, negative for a signal.
        :param log_read: whether its log was read to its end.
        :param was_stopped: whether a guard ended the driver.
        """
        well = self.log.ended_well(exit_code, is_read=log_read, was_stopped=was_stopped)
        code = self.log.exit_code(exit_code, is_read=log_read)
        end = f"exit code {code}" if code >= 0 else f"signal {-code}"
        self._keep(end=end, ended_ms=now_ms(), log_read=log_read, ended_well=well)

    def settled(self, settlement: Settlement) -> None:
        """Record its settlement by the table."""
        log_settlement(self._logger, settlement)
        is_settled = settlement.unreadable is None and self._attempt.log_read
        self._keep(outcome=str(settlement.outcome), settled=is_settled)

    def started(self, handle: Handle) -> None:
        """Record the driver, before it may do anything."""
        self._keep(driver=handle)

    def feed(self, entry: Entry) -> None:
        """Take what comes from the driver."""
        self.log.take(entry)
        self._note_instants()
        if self.log.end is not None and self._attempt.ended_well is None:
            # A worker that is lost while Spark shuts down has left this behind.
            self._keep_or_warn(ended_well=self.log.ended_well(0))
        if self._ask_again_at is not None and _monotonic() >= self._ask_again_at:
            self._keep_or_warn()

    def _note_instants(self) -> None:
        """Record what is new, and forget what has turned out to be another writer's.

        A process that continues an attempt may read the end of the log only: then its first instant is
        not the first one of the record.
        """
        instants = self.log.own_instants
        if instants == self._noted:
            return
        self._noted = instants
        for instant in instants:
            if instant not in self._attempt.instants:
                self.requested(instant)
        others = self.log.instants.taken.difference(instants)
        if others.intersection(self._attempt.instants):
            remaining = tuple(time for time in self._attempt.instants if time not in others)
            self._keep_or_warn(instants=remaining)

    def requested(self, instant: str) -> None:
        """Record a write that the driver requested, by its requested time."""
        self._logger.info("Hudi instant %s was requested by this driver.", instant)
        self._keep_or_warn(instants=(*self._attempt.instants, instant))
        self._run.publish_instants(self._attempt.instants)

    def _keep_or_warn(self, **changes: Any) -> None:
        try:
            self._keep(**changes)
            self._ask_again_at = None
        except StateStoreError as error:
            self._ask_again_at = _monotonic() + _ASK_AGAIN_S
            instants = ", ".join(self._attempt.instants)
            what = f"Hudi instant {instants}" if instants else "The driver's report of its end"
            self._logger.warning("%s is not recorded yet, the driver runs on: %s", what, error.message)

    def _keep(self, **changes: Any) -> None:
        changes = {"application_id": self.log.application_id, **changes}
        self._attempt = replace(self._attempt, **changes)
        self._run.keep(self._attempt)


def new_attempt(run: Journal, table: str) -> AttemptRecord:
    """Return the record of an attempt that begins now.

    :param table: base path of the table that it writes.
    """
    return AttemptRecord(
        try_number=run.now.number,
        max_tries=run.now.max_tries,
        identity=run.record.identity,
        table=table,
        started_ms=now_ms(),
    )


def log_settlement(logger: Any, settlement: Settlement) -> None:
    """Log the outcome of an attempt, and what decided it."""
    error = settlement.error()
    if error:
        logger.error(brief(error.message))
    logger.info(
        "Outcome: %s (instant %s, exit code %s).",
        settlement.outcome,
        settlement.instant or "-",
        settlement.exit_code,
    )
    if settlement.overruled:
        logger.warning(
            "early_stop was wrong or too late: %s is committed. The driver was ended because it had "
            "found that %s. Anything that the job does after its commit may not have run.",
            settlement.instant,
            settlement.overruled.line,
        )
    for line in unrepeated(settlement.lines):
        logger.info("Decided by: %s", line.removeprefix(": "))
    log_retired_heartbeats(logger, "The driver", settlement.retired)


def log_retired_heartbeats(logger: Any, origin: str, instants: Iterable[str]) -> None:
    """Log which heartbeats were removed.

    :param origin: what left them.
    :param instants: requested times of their instants.
    """
    for instant in instants:
        logger.info(
            "%s left instant %s unfinished; its heartbeat was removed, so that no writer waits for it "
            "and the next lazy clean rolls it back.",
            origin,
            instant,
        )


def audit_task_run(
    record: TaskRecord, snapshot: Snapshot, logger: Any, commits: Sequence[Commit], expected: Commits
) -> None:
    """Log if there are several commits, or files that a fenced driver left.

    :param commits: of the task run.
    :param expected: how many the job makes.
    :raises DanglingFilesError: if readers see such files.
    """
    if len(commits) > 1 and expected is Commits.ONE:
        logger.warning("This task run has %s commits in the table, not one.", len(commits))
    for orphaned in dangling(record.attempts, snapshot):
        if orphaned.visible:
            raise orphaned.error()
        logger.warning("%s. Readers do not see them. Remedy: %s", orphaned.message, orphaned.remedy)
