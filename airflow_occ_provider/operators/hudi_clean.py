"""``HudiCleanOperator``: Hudi removes what dead writers left in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.cleaning import CleanRun
from airflow_occ_provider.attempts.journal import now_ms
from airflow_occ_provider.attempts.typed_values import switch
from airflow_occ_provider.attempts.waits import InstantsWait
from airflow_occ_provider.attempts.write import ProtectedTry
from airflow_occ_provider.attempts.write_spec import refuse_foreign
from airflow_occ_provider.errors import TableUnreadableError, WriterAliveError
from airflow_occ_provider.hudi.writer.fate import ENDED, Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.in_driver import clean as clean_job
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator
from airflow_occ_provider.operators.task_run import defer
from airflow_occ_provider.storage.address import named
from airflow_occ_provider.storage.watch import Observation

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiCleanOperator(HudiSparkOperator):
    """Have Hudi roll back the failed writes of dead writers in a table, then clean it.

    It is a ``SparkSubmitOperator`` with a table and without a job of yours. Hudi decides by the
    heartbeats which writers are dead, and does not touch live ones. The task runs beside all writers,
    outside the queue. Only if the lock connection names a lock of one process
    (``InProcessLockProvider``), it is queued and holds the table alone. Afterwards it reads the table,
    reports what was rolled back and what no procedure of Hudi removes, each with its proof and remedy,
    and checks that no completed write has lost a file. It deletes nothing itself.

    Further parameters are those of ``HudiSparkOperator``::

        HudiCleanOperator(task_id="clean", table="s3a://lake/trips")

    A kill, or a time-out of the task, ends the clean's driver; what it has rolled back until then
    stays so. A retry or a clear ends drivers of earlier tries, looks anew and cleans what is dead by
    then.

    :param instants: requested times of pending writes to remove: the task waits until each is dead or
        over. Default: none. Then it waits for writers with an overdue heartbeat, until they beat again
        or are dead, and never for healthy ones. In both cases it cleans every write that is dead by
        then. (templated)
    :param wait: whether to wait for them, without a worker slot.
    :param wait_timeout: how long to wait, for them and for the table if it has to be held alone. Then
        the task fails if a named writer is still alive; else it cleans the dead ones.
    :param dry_run: whether to report only what a clean would find now; no Spark is started.

    The result is a dictionary: ``dead`` (pending writes that Hudi counted as dead before the clean),
    ``rolled_back`` (requested times), ``left`` (what is left, each with ``kind``, ``instant``,
    ``path``, ``proof`` and ``remedy``), ``cleaned_files`` (``None`` if no clean was due) and
    ``dry_run``.
    """

    template_fields: Sequence[str] = (*HudiSparkOperator.template_fields, "instants")
    ui_color = "#e3efdc"
    program = clean_job.__file__

    def __init__(
        self,
        *,
        instants: str | Sequence[str] | None = None,
        wait: bool = True,
        wait_timeout: timedelta = timedelta(hours=1),
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        refuse_foreign(kwargs, ["scope"], "a clean has none: it runs beside all writers")
        super().__init__(wait_timeout=wait_timeout, **kwargs)
        self.instants = instants
        self.wait = wait
        self.is_dry_run = switch("dry_run", dry_run)
        self.take_arguments()

    @property
    def is_queued(self) -> bool:
        """Whether the task holds a lease: a clean runs beside all writers."""
        return False

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
        run = self._protected_run(context)
        clean = self._clean_run(run)
        self._wait_if_needed(clean, clean.observe(), chosen or self._named, since_ms)
        return self._deferring(lambda _: self._clean(run, clean), context)

    def _steps(self, context: Context) -> dict[str, Any]:
        """Wait if the task should, clean, and return the result by the table."""
        run = self._protected_run(context)
        clean = self._clean_run(run)
        if self.is_dry_run:
            return clean.foresee().to_json(dry_run=True)
        since_ms = now_ms()
        observation = clean.observe()
        overdue = [time for time, writer in observation.pending.items() if writer.fate is Fate.LATE]
        self._wait_if_needed(clean, observation, list(self._named) or overdue, since_ms)
        return self._clean(run, clean)

    def _resumed_steps(self, context: Context) -> dict[str, Any]:
        run = self._protected_run(context)
        return self._clean(run, self._clean_run(run))

    @property
    def _named(self) -> tuple[str, ...]:
        return named("instants", self.instants) if self.instants else ()

    def _clean_run(self, run: ProtectedTry) -> CleanRun:
        """Return a clean that judges heartbeats by its driver's options, the site's included."""
        rule = HeartbeatRule.of(run.prepare().options)
        return CleanRun(run.table, self.table, rule, self.log)

    def _clean(self, run: ProtectedTry, clean: CleanRun) -> dict[str, Any]:
        clean.end_earlier_drivers(run.journal, run.spark, run.lease_ttl_s)
        options = run.known_options(run.prepare())
        with run.alone_if_unlocked(options, self.table) as admitted:
            cleaning = clean.clean(lambda: run.run_clean(run.prepare(), self.table, admitted), admitted)
        if cleaning.losses:
            raise cleaning.losses[0].error()
        run.journal.succeed()
        return cleaning.to_json(dry_run=False)

    def _wait_if_needed(
        self, clean: CleanRun, observation: Observation, chosen: Sequence[str], since_ms: int
    ) -> None:
        """Wait until the chosen writers are dead or over, or beat again if none was named.

        :raises WriterAliveError: if a named writer is still alive after the time-out.
        """
        clean.describe(observation, chosen)
        deadline_ms = since_ms + round(self.wait_timeout.total_seconds() * 1000)
        until = ENDED if self._named else (Fate.ALIVE, *ENDED)
        awaited = [instant for instant in chosen if observation.writer(instant).fate not in until]
        if awaited and self.wait and now_ms() < deadline_ms:
            self.log.info("Waiting for %s, without a worker slot.", ", ".join(chosen))
            wait = InstantsWait(tuple(chosen), clean.rule, tuple(until), deadline_ms)
            kwargs = {"chosen": list(chosen), "since_ms": since_ms}
            defer(self, wait, self.execute_after_wait.__name__, kwargs)
        if awaited and self.wait and self._named:
            raise WriterAliveError(
                f"after {self.wait_timeout} still beating: {', '.join(awaited)}; nothing was cleaned",
                remedy="end that writer's driver, or name no instants: then what is dead is cleaned",
            )
