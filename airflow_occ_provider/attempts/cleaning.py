"""One clean of a table by Hudi: what it should remove, its runs, and its result."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.commit import Loss, audit_table
from airflow_occ_provider.attempts.driver import Admitted, DriverRun, end_earlier
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import MEANINGS, LogReading
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.submission import SparkJob, remove_leftovers
from airflow_occ_provider.errors import FenceError
from airflow_occ_provider.hudi.writer.fate import Fate, Kind, Residue, Writer
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.in_driver import clean as clean_job
from airflow_occ_provider.storage.residue import residues
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import Observation, WriterWatch

_COLLISION = re.compile(r"\d{17}(?:_\d{17})?\.(?:clean|rollback)\b")
_WAIT = "nothing while it lives; once it is dead, HudiCleanOperator"
_CLEAN = (
    "HudiCleanOperator, or any protected writer's next clean; in Spark SQL, CALL run_clean with "
    "OPTIMISTIC_CONCURRENCY_CONTROL, the writers' lock and LAZY set for the session"
)
_ASK_HUDI = "look in airflow hudi timeline --archived what became of it"
_TRIES = 3
_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The result of a lazy clean, real or foreseen, by the table.

    :param dead: requested times of the pending writes that Hudi counts as dead before it.
    :param rolled_back: requested times of those that were pending before and that a rollback names now.
    :param residues: what still exists, and what no procedure of Hudi removes.
    :param cleaned_files: how many files the cleans that completed meanwhile deleted; ``None`` if none
        completed.
    :param losses: completed writes with missing files that no clean accounts for.
    """

    dead: tuple[str, ...]
    rolled_back: tuple[str, ...] = ()
    residues: tuple[Residue, ...] = ()
    cleaned_files: int | None = None
    losses: tuple[Loss, ...] = ()

    def to_json(self, *, dry_run: bool) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "dead": list(self.dead),
            "rolled_back": list(self.rolled_back),
            "left": [residue.to_json() for residue in self.residues],
            "cleaned_files": self.cleaned_files,
            "dry_run": dry_run,
        }


def foresee(table: HudiTable, rule: HeartbeatRule) -> tuple[Cleaning, Observation]:
    """Return what a lazy clean would find now, and the writers of the table."""
    observation = WriterWatch(table, rule).observe()
    return Cleaning(dead_writes(observation), residues=residues(table, rule)), observation


def verify(table: HudiTable, rule: HeartbeatRule, before: Observation) -> Cleaning:
    """Return the result of a lazy clean that has ended."""
    after = WriterWatch(table, rule).observe()
    dead = dead_writes(before)
    fates = {time: after.writer(time).fate for time in before.pending}
    rolled_back = tuple(time for time, fate in fates.items() if fate is Fate.ROLLED_BACK)
    remains = (*_writes_left(after, dead), *residues(table, rule, given_up=rolled_back))
    old_files = {instant.file_name for instant in before.snapshot.timeline}
    cleans = [
        after.snapshot.reader.deleted_names(instant)
        for instant in after.snapshot.timeline
        if instant.action == "clean" and instant.completed and instant.file_name not in old_files
    ]
    return Cleaning(
        dead,
        rolled_back,
        tuple(sorted(remains, key=lambda residue: (residue.instant, residue.path))),
        sum(map(len, cleans)) if cleans else None,
        audit_table(table, after.snapshot),
    )


def dead_writes(observation: Observation) -> tuple[str, ...]:
    """Return the requested times of the writes that a lazy clean would roll back."""
    return tuple(time for time, writer in observation.pending.items() if writer.fate is Fate.DEAD)


def has_collided(lines: Iterable[str]) -> bool:
    """Whether a clean failed because it collided with another one.

    Both create the same files of a clean or a rollback, and the second one fails (Hudi 1.2.0).
    """
    return any(_COLLISION.search(line) for line in lines)


def describe_writer(writer: Writer) -> str:
    """Return the state of a pending write as a sentence."""
    what = f"{writer.action} {writer.instant} is {writer.fate}"
    if writer.margin_ms is None:
        return f"{what}: it has no heartbeat, nor has a writer with single-writer settings"
    if writer.margin_ms < 0:
        return f"{what}: its heartbeat expired {-writer.margin_ms / 1000:.1f} s ago"
    return f"{what}: its heartbeat expires in {writer.margin_ms / 1000:.1f} s, unless it beats again"


def _writes_left(after: Observation, dead: Collection[str]) -> list[Residue]:
    remains = []
    for instant in dead:
        writer = after.writer(instant)
        if writer.fate is Fate.GONE:
            proof = f"instant {instant} has left the timeline, and no rollback there names it"
            remains.append(
                Residue(Kind.WRITE, instant, after.snapshot.config.timeline_folder, proof, _ASK_HUDI)
            )
        elif not writer.fate.over:
            remains.append(pending_residue(after, writer))
    return remains


def pending_residue(observation: Observation, writer: Writer) -> Residue:
    """Return a pending write as a residue of the table."""
    instant = observation.snapshot.timeline.find(writer.instant)
    path = f"{observation.snapshot.config.timeline_folder}/{instant.file_name if instant else ''}"
    remedy = _WAIT if writer.fate.beating else _CLEAN
    return Residue(Kind.WRITE, writer.instant, path, describe_writer(writer), remedy)


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
        if MEANINGS[reading.outcome].explains_clean:
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
