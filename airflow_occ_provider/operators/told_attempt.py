"""One attempt as it goes: written into the task run's record, and told in the task's log."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from airflow_occ_provider.errors import StateStoreError
from airflow_occ_provider.jobs.commit import count_commits
from airflow_occ_provider.jobs.driver_log import DriverLog
from airflow_occ_provider.jobs.driver_process import DriverProcess
from airflow_occ_provider.jobs.failure import brief, unrepeated
from airflow_occ_provider.jobs.record import Attempt, TaskRecord
from airflow_occ_provider.jobs.settle import Settlement
from airflow_occ_provider.jobs.survivor import dangling
from airflow_occ_provider.operators.driver import Follower
from airflow_occ_provider.operators.task_run import TaskRun, now_ms
from airflow_occ_provider.storage.snapshot import Snapshot

_monotonic = time.monotonic
_ASK_AGAIN_S = 30.0


class ToldAttempt:
    """An attempt that records its driver before it starts, and each instant once it is requested.

    A driver that cannot be recorded does not start. An instant that cannot be recorded ends no
    driver: it is recorded later, at the latest when the driver has ended.

    :param run: the task run.
    :param table: base path of the table that it writes.
    :param logger: the task's log.
    """

    def __init__(self, run: TaskRun, table: str, logger: Any) -> None:
        self._run = run
        self._logger = logger
        self.log = DriverLog()
        self.follower = Follower(self.log, self._started, self._requested, self._read_line)
        self._ask_again_at: float | None = None
        self._attempt = Attempt(
            try_number=run.now.number,
            max_tries=run.now.max_tries,
            identity=run.record.identity,
            table=table,
            started_ms=now_ms(),
        )

    @property
    def seconds(self) -> float:
        """For how long its driver has run, with its start."""
        return ((self._attempt.ended_ms or now_ms()) - self._attempt.started_ms) / 1000

    def ended(self, exit_code: int, *, log_read: bool) -> None:
        """Write down that the driver's end was seen.

        :param exit_code: the driver's, negative for a signal.
        :param log_read: whether its log was read to its end.
        """
        end = f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
        self._keep(end=end, ended_ms=now_ms(), log_read=log_read)

    def settled(self, settlement: Settlement) -> None:
        """Write down what the table says of it."""
        self._tell(settlement)
        told = settlement.unreadable is None and self._attempt.log_read
        self._keep(outcome=str(settlement.outcome), settled=told)

    def _started(self, process: DriverProcess) -> None:
        self._keep(driver=process)

    def _requested(self, instant: str) -> None:
        self._logger.info("Hudi instant %s was requested by this driver.", instant)
        self._keep_or_warn(instants=(*self._attempt.instants, instant))
        self._run.tell_instants(self._attempt.instants)

    def _read_line(self, _: str) -> None:
        if self._ask_again_at is not None and _monotonic() >= self._ask_again_at:
            self._keep_or_warn()

    def _keep_or_warn(self, **changes: Any) -> None:
        try:
            self._keep(**changes)
            self._ask_again_at = None
        except StateStoreError as error:
            self._ask_again_at = _monotonic() + _ASK_AGAIN_S
            self._logger.warning(
                "Hudi instant %s is not recorded yet, the driver runs on: %s",
                ", ".join(self._attempt.instants),
                error.message,
            )

    def _keep(self, **changes: Any) -> None:
        told = {"application_id": self.log.application_id, **changes}
        self._attempt = replace(self._attempt, **told)
        self._run.keep(self._attempt)

    def _tell(self, settlement: Settlement) -> None:
        error = settlement.error()
        if error:
            self._logger.error(brief(error.message))
        self._logger.info(
            "Outcome: %s (instant %s, exit code %s).",
            settlement.outcome,
            settlement.instant or "-",
            settlement.exit_code,
        )
        for line in unrepeated(settlement.lines):
            self._logger.info("Decided by: %s", line.removeprefix(": "))
        tell_retired(self._logger, "The driver", settlement.retired)


def tell_retired(logger: Any, who: str, instants: Iterable[str]) -> None:
    """Tell in a task's log which heartbeats were removed.

    :param who: left them.
    :param instants: requested times.
    """
    for instant in instants:
        logger.info(
            "%s left instant %s unfinished; its heartbeat was removed, so that nobody waits for it and "
            "the next lazy clean rolls it back.",
            who,
            instant,
        )


def tell_oddities(record: TaskRecord, snapshot: Snapshot, logger: Any) -> None:
    """Tell of more commits than one, and of files that a fenced driver has left.

    :param record: of the task run.
    :param snapshot: of its table.
    :param logger: the task's log.
    :raises DanglingFilesError: if readers see such files.
    """
    commits = count_commits(snapshot, record.identities, record.since or "")
    if commits > 1:
        logger.warning("This task run has %s commits in the table, not one.", commits)
    for found in dangling(record.attempts, snapshot):
        if found.visible:
            raise found.error()
        logger.warning("%s. Readers do not see them. Remedy: %s", found.message, found.remedy)
