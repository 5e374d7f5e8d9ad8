"""``ProtectedOperator``: a Spark job that is given Hudi's protection, whatever it does to its table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk.log import mask_secret

from airflow_occ_provider.errors import AdmissionTimeoutError, TableUnreadableError, WorkerLostError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.fate import ENDED, Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import writer_options
from airflow_occ_provider.hudi.writer.secrets import redact, secrets_in
from airflow_occ_provider.jobs.attempt import prepared, refuse_unproven
from airflow_occ_provider.jobs.driver_log import DriverLog
from airflow_occ_provider.jobs.outcome import Reading
from airflow_occ_provider.jobs.site import Site, read_site
from airflow_occ_provider.operators.admitted import AdmittedOperator
from airflow_occ_provider.operators.choices import (
    constant_options,
    early_choice,
    refuse_wrong_pairs,
    rendered_options,
    resolution_choice,
)
from airflow_occ_provider.operators.claim import known_options
from airflow_occ_provider.operators.driver import Follower
from airflow_occ_provider.operators.preparation import (
    Preparation,
    Protection,
    prepare,
    sign,
    strategy_option,
)
from airflow_occ_provider.operators.retry_policy import (
    DEFAULT_RETRIES,
    HudiConflictRetryPolicy,
)
from airflow_occ_provider.operators.rivals import still_pending
from airflow_occ_provider.operators.task_run import TaskRun, now_ms
from airflow_occ_provider.retry import ConflictRetry
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context


class ProtectedOperator(AdmittedOperator):
    """An ``AdmittedOperator`` whose drivers read the protected writer's options, or do not start.

    :param storage_conn_id: Airflow connection of the table's storage, for reading its metadata; by
        default the credentials that the worker itself has. (templated)
    :param early_conflict_detection: whether Hudi looks for rivals while it writes, not only when it
        commits: ``"off"``, ``"on"`` (the strategy that suits the storage), or one of Hudi's own:
        ``"simple_direct"``, ``"transaction_direct"``, ``"timeline_server"``.
    :param conflict_resolution: Hudi's conflict resolution strategy: ``"simple"``,
        ``"bucket_index"``, or ``"prefer_writer"``, which all writers and table services of the table
        must share; by default the one that Hudi infers from the index.
    :param hudi_options: further Hudi options for the job: a dictionary, or what is rendered to one.
        (templated)
    :param retries: upper bound of all retries of the task, whatever their cause.
    """

    template_fields: Sequence[str] = (
        *AdmittedOperator.template_fields,
        "table",
        "lock_conn_id",
        "storage_conn_id",
        "scope",
        "hudi_options",
        "hudi_defaults",
        "submission",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("conf", "env_vars", "scope", "hudi_options", "hudi_defaults", "submission"), "json"
    )
    overwrite_rtif_after_execution = True

    def __init__(
        self,
        *,
        table: str,
        storage_conn_id: str | None = None,
        early_conflict_detection: bool | EarlyDetection | str = EarlyDetection.ON,
        conflict_resolution: Strategy | str | None = None,
        hudi_options: Mapping[str, Any] | str | None = None,
        retries: int | None = DEFAULT_RETRIES,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, retries=None if retries is None else int(retries), **kwargs)
        self.has_default_retries = isinstance(retries, type(DEFAULT_RETRIES))
        self.storage_conn_id = storage_conn_id
        self.early_conflict_detection = early_choice(early_conflict_detection)
        self.conflict_resolution = resolution_choice(conflict_resolution)
        self.hudi_options = hudi_options
        self._refuse_options(constant_options(hudi_options))
        self.hudi_defaults: dict[str, str] = {}
        self._run: TaskRun | None = None

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        """Render the fields, of a mapped task too, and show the options that are known by then.

        Nothing is asked of the table, the lock service or Airflow: the attempt does, and has the UI
        show what it was given.
        """
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        if parent is not self:
            return
        given = {key: str(value) for key, value in rendered_options(self.hudi_options).items()}
        _hide({**given, **(self.conf or {})})
        ours = {**writer_options({}, {}), **strategy_option(self.conflict_resolution)}
        self.hudi_defaults = redact({**ours, **given})

    def _refuse_options(self, options: Mapping[str, Any]) -> None:
        """Refuse Hudi options that do not go with the operator's parameters.

        :param options: as far as they are known.
        :raises ConfigurationError: with the one that is wrong, and the remedy.
        """
        refuse_wrong_pairs(self.table, self.early_conflict_detection, self.conflict_resolution, options)

    def _warn_of_few_retries(self) -> None:
        if isinstance(self.retry_policy, HudiConflictRetryPolicy):
            self.retry_policy.warn_of_few(self.retries or 0, self.log)

    def execute_after_rivals(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Go on after the wait for instants of others: the table decides.

        :raises TableUnreadableError: if the triggerer cannot watch the table.
        """
        if event["status"] == "error":
            raise TableUnreadableError(event["message"])
        return self._execute(context)

    def _wait_for_rivals(self, run: TaskRun, rule: HeartbeatRule) -> None:
        """Defer while the rivals of a lost attempt are pending, which the queue could not keep away."""
        if not run.record.rivals:
            return
        left = still_pending(self._table, run.record.rivals, rule)
        if left:
            self._wait_for(run, left, f"{', '.join(left)}, to which the last attempt lost", rule)
        run.forget_rivals()

    def _wait_for(
        self,
        run: TaskRun,
        instants: Sequence[str],
        reason: str,
        rule: HeartbeatRule,
        *,
        until: Sequence[Fate] = ENDED,
        until_ms: int = 0,
    ) -> NoReturn:
        """Defer until pending instants of others have come to a fate.

        :param until_ms: epoch milliseconds at which the table is looked at again in any case.
        :raises AdmissionTimeoutError: if that has taken longer than ``admission_timeout``.
        """
        waiting = run.wait(f"waiting for {reason}", tuple(instants), now_ms())
        deadline_ms = waiting.since_ms + round(self.admission_timeout.total_seconds() * 1000)
        if now_ms() >= deadline_ms:
            run.stop_waiting()
            raise AdmissionTimeoutError(
                f"after {self.admission_timeout} still {waiting.reason}",
                remedy="look with `airflow hudi writers` what keeps them; a clustering that no driver "
                "runs is for HudiClusteringOperator(op='run'); or raise admission_timeout",
            )
        self.log.info("Without a worker slot: %s.", waiting.reason)
        self.defer(
            trigger=HudiHeartbeatTrigger(
                table=self.table,
                storage_conn_id=self.storage_conn_id,
                instants=list(instants),
                until=[fate.value for fate in until],
                interval_ms=rule.interval_ms,
                tolerable_misses=rule.tolerable_misses,
                deadline_ms=min(deadline_ms, until_ms or deadline_ms),
            ),
            method_name=self.execute_after_rivals.__name__,
        )
        raise AssertionError("not reached")

    def _refuse_deaths(self, run: TaskRun) -> None:
        """Refuse one more driver where the worker has died with too many: no policy saw those tries.

        :raises WorkerLostError: then.
        """
        policy = self.retry_policy
        rules = policy.rules if isinstance(policy, HudiConflictRetryPolicy) else ConflictRetry()
        budget = rules.budgets["worker"]
        died = run.record.unexplained(run.now)
        if len(died) > budget:
            raise WorkerLostError(
                f"the worker died together with its driver in tries {', '.join(map(str, died))}: the "
                f"job is not run again ({budget} such retries are allowed)",
                remedy="look what ended the worker (out of memory, an eviction, a lost node), give it "
                "more memory than the driver takes, and clear the task",
            )

    def _task_run(self, context: Context) -> TaskRun:
        if self._run is None:
            self._run = TaskRun(context)
        return self._run

    @cached_property
    def _table(self) -> HudiTable:
        return open_table(self.table, self.storage_conn_id)

    def _open(self, table: str) -> HudiTable:
        """Open a table of an earlier try, as a rule the same."""
        return self._table if table == self.table else open_table(table, self.storage_conn_id)

    def _prepare(self, context: Context, run: TaskRun, order_token: str = "") -> Preparation:
        """Decide what the attempt is given, and have the UI show it."""
        snapshot = self._table.snapshot(missing_ok=True)
        self._claim.refuse_impossible(snapshot.config)
        given = rendered_options(self.hudi_options)
        self._refuse_options(given)
        protection = Protection(
            self._lock_hook, self.early_conflict_detection, self.conflict_resolution, given
        )
        signature = sign(context, run.record.identity, snapshot, order_token)
        preparation = prepare(protection, self._job, self._site, signature, snapshot)
        _hide(preparation.options)
        self.hudi_defaults = dict(preparation.shown)
        return preparation

    @cached_property
    def _site(self) -> Site:
        return read_site(
            self._spark_hook.spark_binary or "spark-submit",
            {**os.environ, **self._env_vars},
            properties_file=self.properties_file,
            class_path=(self.driver_class_path or "").split(os.pathsep),
        )

    def _known_options(self, context: Context, run: TaskRun) -> dict[str, str]:
        """Refuse what cannot run, before it stands in line; what is known of the job's options."""
        preparation = self._prepare(context, run)
        refuse_unproven(self._job, preparation.site)
        self.log.info(self._lock_hook.check())
        spark = {**dict(preparation.site.spark.options), **(self.conf or {})}
        return known_options(preparation.options, spark, self._table.config())

    def _run_ours(
        self, context: Context, preparation: Preparation, application: str, arguments: Sequence[str]
    ) -> tuple[int, Reading]:
        """Run a job of ours in the place of the user's; its exit code, and what its log tells."""
        job = replace(self._job, application=application, arguments=tuple(arguments))
        refuse_unproven(job, preparation.site)
        log = DriverLog()
        with prepared(job, preparation.options, preparation.site) as submission:
            exit_code = self._submit(context, submission, Follower(log))
        return exit_code, log.read(exit_code, committed=False)


def _hide(options: Mapping[str, object]) -> None:
    """Have Airflow hide the secrets among some options in the task's logs and rendered fields."""
    for key, value in options.items():
        for secret in secrets_in(key, str(value)):
            mask_secret(secret)
