"""One clean of a table by Hudi, repeated after a collision, and verified."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.cleaning import (
    Cleaning,
    describe_writer,
    foresee,
    has_collided,
    verify,
)
from airflow_occ_provider.attempts.driver import DriverRun, end_earlier
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import LogReading, Outcome
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.submission import SparkJob, remove_leftovers
from airflow_occ_provider.errors import FenceError
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.in_driver import clean as clean_job
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import Observation, WriterWatch

_TRIES = 3
_PAUSE_S = 10.0
_SAID_BY_THE_LOG = (Outcome.LOCK_TIMEOUT, Outcome.KILLED, Outcome.MISCONFIGURATION)


@dataclass(frozen=True, slots=True)
class CleanRun:
    """Cleans one table, and logs the result."""

    table: HudiTable
    path: str
    rule: HeartbeatRule
    log: Any

    def observe(self) -> Observation:
        """Return the writers of the table as they are now."""
        return WriterWatch(self.table, self.rule).observe()

    def describe(self, observation: Observation, chosen: Collection[str]) -> None:
        """Log the pending writes, and the chosen instants that are not pending."""
        for writer in observation.pending.values():
            self.log.info("%s.", describe_writer(writer))
        for instant in sorted(set(chosen) - observation.pending.keys()):
            self.log.info("%s is not pending: %s.", instant, observation.writer(instant).fate)

    def foresee(self) -> Cleaning:
        """Return and log what a clean would find now."""
        cleaning, observation = foresee(self.table, self.rule)
        for writer in observation.pending.values():
            verdict = "would be rolled back" if writer.fate is Fate.DEAD else "would stay"
            self.log.info("%s; it %s.", describe_writer(writer), verdict)
        if not observation.pending:
            self.log.info("Nothing is pending.")
        self._log_left(cleaning)
        return cleaning

    def clean(self, drive: Callable[[], tuple[int, LogReading]], admitted: Admitted) -> Cleaning:
        """Have Hudi clean the table; read the result from the table, and log it.

        :param drive: runs the driver once; returns its exit code, and what its log says.
        """
        before = self.observe()
        for tries_left in reversed(range(_TRIES)):
            exit_code, reading = drive()
            admitted.refuse_if_lost()
            if not exit_code:
                break
            self._refuse(exit_code, reading, is_last=not tries_left)
            self.log.info("Another clean of the table got in the way; trying again.")
            time.sleep(_PAUSE_S)
        cleaning = verify(self.table, self.rule, before)
        self._log(cleaning)
        return cleaning

    def end_earlier_drivers(self, run: Journal, spark: DriverRun, lease_ttl_s: float) -> None:
        """End the drivers of earlier tries of the task run, which are not recorded.

        :param lease_ttl_s: of the lease on which their work may depend.
        :raises FenceError: if one does not end.
        """
        for identity in run.record.identities:
            for handles in spark.revoke_unrecorded(identity, lease_ttl_s).values():
                for handle in handles:
                    if end_earlier(spark.submitter(handle), handle, "an earlier try's clean"):
                        self.log.info("The clean of an earlier try was running, and was ended.")
            remove_leftovers(identity)

    def _refuse(self, exit_code: int, reading: LogReading, *, is_last: bool) -> None:
        """Refuse a failed driver, unless it collided with another clean and may run again."""
        if has_collided(reading.lines) and not is_last:
            return
        if reading.outcome in _SAID_BY_THE_LOG:
            error = Settlement(reading.outcome, lines=reading.lines, exit_code=exit_code).error()
            raise error or AssertionError("not reached")
        raise FenceError(
            f"the lazy clean of {self.path} failed (exit code {exit_code}): {' '.join(reading.lines)}",
            remedy="correct what the task's log shows; a clean may be run again at any time",
        )

    def _log(self, cleaning: Cleaning) -> None:
        self.log.info(
            "Hudi rolled back %s write(s)%s; %s.",
            len(cleaning.rolled_back),
            f": {', '.join(cleaning.rolled_back)}" if cleaning.rolled_back else "",
            "no clean was due"
            if cleaning.cleaned_files is None
            else f"its clean deleted {cleaning.cleaned_files} file(s)",
        )
        self._log_left(cleaning)
        for loss in cleaning.losses:
            self.log.error("Data loss: %s", loss)

    def _log_left(self, cleaning: Cleaning) -> None:
        for residue in cleaning.residues:
            self.log.warning("Left: %s", residue)


def run_clean(
    spark: DriverRun, job: SparkJob, preparation: Preparation, table: str, admitted: Admitted
) -> tuple[int, LogReading]:
    """Run Hudi's clean instead of a task's job; return exit code and log reading."""
    job = replace(
        job,
        application=clean_job.__file__,
        arguments=(table,),
        table=table,
        lease_ttl_s=admitted.lease_ttl_s,
    )
    spark.refuse(job, preparation.site)
    log = DriverLog()
    identity = preparation.signature.identity
    with spark.prepared(job, preparation.options) as submission:
        driver = spark.driver(submission)
        admitted.extend(driver)
        driver.run([log.take], guards=[admitted])
    spark.forget(identity)
    return log.outcome_of(driver.exit_code or 0, is_read=driver.log_read)
