"""``HudiCleanOperator``: what dead writers left in a Hudi table, removed by Hudi's own lazy clean."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.errors import FenceError, TableUnreadableError, WriterAliveError
from airflow_occ_provider.hudi.writer.fate import ENDED, Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs import clean_job
from airflow_occ_provider.jobs.attempt import remove_leftovers
from airflow_occ_provider.jobs.cleaning import Cleaning, describe_writer, foresee, has_collided, verify
from airflow_occ_provider.jobs.outcome import Outcome
from airflow_occ_provider.jobs.settle import Settlement
from airflow_occ_provider.operators.admitted import Admitted
from airflow_occ_provider.operators.choices import AdmissionMode, refuse_foreign
from airflow_occ_provider.operators.driver import end_survivors
from airflow_occ_provider.operators.protected import ProtectedOperator
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES, HudiConflictRetryPolicy
from airflow_occ_provider.operators.task_run import TaskRun, now_ms
from airflow_occ_provider.storage.address import named
from airflow_occ_provider.storage.watch import Observation, WriterWatch
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy

_FOREIGN = ("application", "application_args", "scope", "key_safe", "reads_table", "admission")
_TRIES = 3
_PAUSE_S = 10.0
_SAID_BY_THE_LOG = (Outcome.LOCK_TIMEOUT, Outcome.KILLED, Outcome.MISCONFIGURATION)


class HudiCleanOperator(ProtectedOperator):
    """Have Hudi remove what dead writers left in a table: lazy rollback of failed writes, then a clean.

    It is a ``SparkSubmitOperator`` with a table and without a job of yours. Hudi decides who is
    dead, by the heartbeats; a live writer is left alone. It runs beside all writers, outside the queue.
    Only where the lock connection names a lock of one process (``InProcessLockProvider``) it is queued,
    and holds the table alone. The table is read afterwards: what was rolled back, that no completed
    write has lost a file, and what is left that no procedure of Hudi's removes, each with its proof and
    its remedy. Nothing of that is deleted here.

    :param table: base path of the table, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param storage_conn_id: Airflow connection of the table's storage, for reading its metadata; by
        default the credentials that the worker itself has. (templated)
    :param hudi_options: further Hudi options, such as ``hoodie.clean.commits.retained``. (templated)
    :param instants: requested times of pending writes that should be gone: each is waited for until
        it is dead or over. By default nobody needs to name any: writers with an overdue heartbeat
        are waited for until they beat again or are dead, healthy ones never. What is cleaned is
        the same either way: all that is dead by then. (templated)
    :param wait: whether to wait for them, without a worker slot.
    :param wait_timeout: how long to wait. Then the task fails if a named writer still lives; else
        it cleans what is dead.
    :param admission_timeout: how long to wait for the table where it has to be held alone.
    :param dry_run: whether only to tell what a clean would find now; no Spark is started.
    :param retries: upper bound of all retries of the task, whatever their cause.
    :param retry_policy: what is retried, how often and when.

    The result is a dictionary: ``dead`` (pending writes that Hudi counts as dead, before the clean),
    ``rolled_back`` (their requested times), ``left`` (what is left, each with ``kind``, ``instant``,
    ``path``, ``proof`` and ``remedy``), ``cleaned_files`` (``None`` where no clean was due) and
    ``dry_run``.
    """

    template_fields: Sequence[str] = (*ProtectedOperator.template_fields, "instants")
    ui_color = "#e3efdc"

    def __init__(
        self,
        *,
        instants: str | Sequence[str] | None = None,
        wait: bool = True,
        wait_timeout: timedelta = timedelta(hours=1),
        dry_run: bool = False,
        retries: int | None = DEFAULT_RETRIES,
        retry_policy: RetryPolicy | None = HudiConflictRetryPolicy(),  # noqa: B008 - Airflow reads defaults here
        **kwargs: Any,
    ) -> None:
        refuse_foreign(kwargs, _FOREIGN, "a clean has none: it runs a job of ours, beside all writers")
        super().__init__(
            application=clean_job.__file__,
            admission=AdmissionMode.OFF,
            application_args=None,  # named, so that default_args for writers do not reach it
            scope=None,
            key_safe=False,
            reads_table=False,
            retries=retries,
            retry_policy=retry_policy,
            **kwargs,
        )
        self.instants = instants
        self.wait = wait
        self.wait_timeout = wait_timeout
        self.is_dry_run = dry_run
        self._rule = HeartbeatRule()

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Wait where that was asked for, clean, and return what the table says of it."""
        self._learn_rule(context)
        if self.is_dry_run:
            return self._tell_dry_run()
        since_ms, sight = now_ms(), self._look()
        overdue = [time for time, one in sight.pending.items() if one.fate is Fate.LATE]
        chosen = list(self._named) or overdue
        return self._wait_or_clean(context, sight, chosen, since_ms)

    def _execute(self, context: Context) -> dict[str, Any]:
        self._learn_rule(context)
        return self._clean(context, self._task_run(context))

    def execute_after_wait(
        self,
        context: Context,
        event: Mapping[str, Any],
        chosen: Sequence[str] = (),  # dag.test() passes on the event alone (Airflow 3.3.2)
        since_ms: int = 0,
    ) -> dict[str, Any]:
        """Go on after ``HudiHeartbeatTrigger`` has fired: the table decides.

        :raises TableUnreadableError: if the triggerer cannot watch the table.
        """
        if event["status"] == "error":
            raise TableUnreadableError(event["message"])
        self._learn_rule(context)
        return self._wait_or_clean(context, self._look(), chosen or self._named, since_ms)

    @property
    def _named(self) -> tuple[str, ...]:
        return named("instants", self.instants) if self.instants else ()

    def _learn_rule(self, context: Context) -> None:
        """Judge heartbeats by the options that the clean's own driver reads, the site's among them."""
        self._rule = HeartbeatRule.of(self._prepare(context, self._task_run(context)).options)

    def _look(self) -> Observation:
        return WriterWatch(self._table, self._rule).observe()

    def _wait_or_clean(
        self, context: Context, sight: Observation, chosen: Sequence[str], since_ms: int
    ) -> dict[str, Any]:
        for writer in sight.pending.values():
            self.log.info("%s.", describe_writer(writer))
        for instant in sorted(set(chosen) - sight.pending.keys()):
            self.log.info("%s is not pending: %s.", instant, sight.writer(instant).fate)
        deadline_ms = since_ms + round(self.wait_timeout.total_seconds() * 1000)
        until = ENDED if self._named else (Fate.ALIVE, *ENDED)
        awaited = [one for one in chosen if sight.writer(one).fate not in until]
        if awaited and self.wait and now_ms() < deadline_ms:
            self._wait(chosen, until, since_ms, deadline_ms)
        if awaited and self.wait and self._named:
            raise WriterAliveError(
                f"after {self.wait_timeout} still beating: {', '.join(awaited)}; nothing was cleaned",
                remedy="end that writer's driver, or name no instants: then what is dead is cleaned",
            )
        return self._execute(context)

    def _wait(
        self, chosen: Sequence[str], until: Sequence[Fate], since_ms: int, deadline_ms: int
    ) -> None:
        self.log.info("Waiting for %s, without a worker slot.", ", ".join(chosen))
        self.defer(
            trigger=HudiHeartbeatTrigger(
                table=self.table,
                storage_conn_id=self.storage_conn_id,
                instants=list(chosen),
                until=[fate.value for fate in until],
                interval_ms=self._rule.interval_ms,
                tolerable_misses=self._rule.tolerable_misses,
                deadline_ms=deadline_ms,
            ),
            method_name=self.execute_after_wait.__name__,
            kwargs={"chosen": list(chosen), "since_ms": since_ms},
        )

    def _clean(self, context: Context, run: TaskRun) -> dict[str, Any]:
        self._end_earlier_drivers(run)
        options = self._known_options(context, run)
        with self._alone_where_nothing_locks(context, run, options, self.table) as admitted:
            before = self._look()
            for left in reversed(range(_TRIES)):
                if self._has_run(context, run, admitted, last=not left):
                    break
                time.sleep(_PAUSE_S)
        cleaning = verify(self._table, self._rule, before)
        self._tell(cleaning)
        if cleaning.losses:
            raise cleaning.losses[0].error()
        run.succeed()
        return cleaning.to_json(dry_run=False)

    def _has_run(self, context: Context, run: TaskRun, admitted: Admitted, *, last: bool) -> bool:
        """Run Hudi's clean; ``False`` where another one got in its way.

        :raises OccError: if it failed otherwise, or for the last time.
        """
        preparation = self._prepare(context, run)
        exit_code, reading = self._run_ours(context, preparation, clean_job.__file__, (self.table,))
        admitted.refuse_if_lost()
        if not exit_code:
            return True
        if has_collided(reading.lines) and not last:
            self.log.info("Another clean of the table got in the way; trying again.")
            return False
        if reading.outcome in _SAID_BY_THE_LOG:
            known = Settlement(reading.outcome, lines=reading.lines, exit_code=exit_code).error()
            raise known or AssertionError("not reached")
        raise FenceError(
            f"the lazy clean of {self.table} failed (exit code {exit_code}): {' '.join(reading.lines)}",
            remedy="correct what the task's log shows; a clean may be run again at any time",
        )

    def _end_earlier_drivers(self, run: TaskRun) -> None:
        """End what earlier tries of this task run have running on this host."""
        for identity in run.record.identities:
            found, left = end_survivors(identity)
            if left:
                raise FenceError(
                    f"processes {left} of an earlier try's clean do not end",
                    remedy="look what they wait for (a dead mount?), end them, and clear the task",
                )
            if found:
                self.log.info("The clean of an earlier try was still running, and was ended.")
            remove_leftovers(identity)

    def _tell_dry_run(self) -> dict[str, Any]:
        cleaning, sight = foresee(self._table, self._rule)
        for writer in sight.pending.values():
            verdict = "would be rolled back" if writer.fate is Fate.DEAD else "would stay"
            self.log.info("%s; it %s.", describe_writer(writer), verdict)
        if not sight.pending:
            self.log.info("Nothing is pending.")
        self._tell_left(cleaning)
        return cleaning.to_json(dry_run=True)

    def _tell(self, cleaning: Cleaning) -> None:
        self.log.info(
            "Hudi rolled back %s write(s)%s; %s.",
            len(cleaning.rolled_back),
            f": {', '.join(cleaning.rolled_back)}" if cleaning.rolled_back else "",
            "no clean was due"
            if cleaning.cleaned_files is None
            else f"its clean deleted {cleaning.cleaned_files} file(s)",
        )
        self._tell_left(cleaning)
        for loss in cleaning.losses:
            self.log.error("Data loss: %s", loss)

    def _tell_left(self, cleaning: Cleaning) -> None:
        for one in cleaning.left:
            self.log.warning("Left: %s", one)
