"""``Write``: one try of a task that writes, from its earlier tries to its result."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.attempt_recorder import audit_task_run
from airflow_occ_provider.attempts.commit import Commit, facts_of, run_commits
from airflow_occ_provider.attempts.earlier_tries import EarlierTries, begun_attempt, end_earlier_drivers
from airflow_occ_provider.attempts.journal import known_state
from airflow_occ_provider.attempts.preparation import Preparation, refuse_pending_restore
from airflow_occ_provider.attempts.protected_try import ProtectedTry
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.record_parts import NOTHING_BEFORE
from airflow_occ_provider.attempts.waits import DriverEvent, wait_for_survivor
from airflow_occ_provider.attempts.write_attempt import WriteAttempt
from airflow_occ_provider.errors import FenceError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.address import is_one_table


@dataclass(frozen=True, slots=True)
class Write:
    """One try of a task's write, which may be repeated after each wait.

    :param run: the try.
    :param event: of the process that has watched the driver since the last wait.
    """

    run: ProtectedTry
    event: DriverEvent = field(default_factory=DriverEvent)

    def result(self) -> dict[str, Any]:
        """Settle the earlier tries, run the job once, and return the facts by the table.

        :raises OccError: if the attempt failed, or its commit is not safe.
        :raises WaitNeeded: if the try has to wait; then it is repeated.
        """
        started = time.monotonic()
        run = self.run
        run.look_up()
        with known_state(run.journal):
            begun = begun_attempt(
                run.journal, run.spark.submitter, run.spec.table, run.work_digest, run.log
            )
        return self._audited(self._continue(begun) if begun else self._commit(), started)

    def _commit(self) -> Commit | None:
        """Return what the task run commits, by an earlier try or by a new attempt."""
        run = self.run
        with known_state(run.journal):
            preparation = run.prepare()
            commit = self._settle_earlier(preparation)
        if commit:
            return commit
        if run.journal.record.attempts:  # whose settlement may have taken minutes
            preparation = run.prepare()
        run.refuse_deaths()
        options = run.known_options(preparation)
        run.wait_for_rivals(options)
        with run.admitted(options) as admitted:
            preparation = run.prepare(admitted.order_token)
            preflight = run.preflight(HeartbeatRule.of(options))
            preflight.begin(run.claim, options, preparation.snapshot)
            return self.attempt(preparation, admitted)

    def _audited(self, commit: Commit | None, started: float) -> dict[str, Any]:
        """Publish and audit what the run has committed, and record its success."""
        run = self.run
        spec = run.spec
        record = run.journal.record
        snapshot = run.table.last_snapshot()  # by which the attempt was settled
        recorded = () if spec.job.signs else record.instants_in(spec.table)
        commits = run_commits(snapshot, record.identities, record.since or NOTHING_BEFORE, recorded)
        if commit and commit.instant.time not in [other.instant.time for other in commits]:  # archived
            commits = [commit, *commits]
        result = {**facts_of(commits), "seconds": round(time.monotonic() - started, 1)}
        run.task_run.publish(commit, result)
        audit_task_run(record, snapshot, run.log, commits, spec.commits)
        run.journal.succeed()
        return result

    def _settle_earlier(self, preparation: Preparation) -> Commit | None:
        """Return what an earlier try committed, once none of them can commit any more."""
        run = self.run
        spec = run.spec
        journal = run.journal
        work = run.work_digest
        rule = HeartbeatRule.of(preparation.options)
        tries = EarlierTries(
            journal,
            run.open,
            rule,
            clean=partial(self._roll_back, preparation),
            log=run.log,
            signed=spec.job.signs,
            commits=spec.commits,
            signature=preparation.signature,
            due_ms=run.task_run.due_ms,
        )
        run.recover()
        end_earlier_drivers(journal, run.spark.submitter, run.log)
        commit = tries.commit(spec.table, work)
        if commit is None and journal.record.unsettled:
            wait = tries.settle()
            commit = tries.commit(spec.table, work)
            if wait and commit is None:
                wait_for_survivor(journal, wait, rule, spec.wait_timeout)
        if commit:
            tries.close()
            run.spark.forget(*journal.record.identities)
        elif journal.record.digest not in ("", work):
            run.log.info("The task's application, arguments, table or scope are others than before.")
            journal.abandon(work)
        return commit

    def _roll_back(self, preparation: Preparation, table: str) -> None:
        """Have Hudi roll back a table's failed writes, alone if its lock excludes no other process."""
        run = self.run
        if not is_one_table(table, run.spec.table):  # an earlier try's, under that table's own lock
            lock = run.lock.options(table)
            preparation = replace(preparation, options={**preparation.options, **lock})
        with run.alone_if_unlocked(preparation.options, table) as admitted:
            exit_code, reading = run.run_clean(preparation, table, admitted)
            admitted.refuse_if_lost()
        if exit_code:
            raise FenceError(
                f"the lazy clean of {table} failed (exit code {exit_code}): {' '.join(reading.lines)}",
                remedy="correct what the task's log shows; nothing was run, so nothing is lost",
            )

    def attempt(self, preparation: Preparation, admitted: Admitted) -> Commit | None:
        """Run the job once under its lease; return what it committed, if anything."""
        run = self.run
        refuse_pending_restore(preparation.snapshot)
        return self.write_attempt().commit(run.job, run.work_digest, preparation, admitted)

    def _continue(self, begun: AttemptRecord) -> Commit | None:
        """Continue the attempt that an earlier process began; return what it committed."""
        run = self.run
        event = self.event
        preparation = run.prepare(begun.order_token)
        with run.admitted(preparation.options, begun, was_leased=event.is_leased) as admitted:
            return self.write_attempt().resumed(begun, event, preparation, admitted)

    def write_attempt(self) -> WriteAttempt:
        """Return the attempt at the task's work."""
        run = self.run
        spec = run.spec
        task_run = run.task_run
        return WriteAttempt(
            run=run.journal,
            table=run.table,
            path=spec.table,
            claim=run.claim,
            lock=run.lock,
            spark=run.spark,
            require_commit=spec.require_commit,
            commits=spec.commits,
            early_stop=spec.policy.early_stop,
            is_queued=spec.is_queued,
            is_deferrable=spec.is_deferrable,
            grants=task_run.grants,
            on_settled=task_run.measures.attempt,
            on_margin=task_run.measures.margin,
            log=run.log,
        )
