"""``HudiWriteOperator``: a Spark job as a safe concurrent writer of one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.choices import (
    AdmissionMode,
    choice,
    resolution_choice,
)
from airflow_occ_provider.attempts.claim import Isolation
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.jobs import Job, MainClass, PythonFile, Sql, refuse_two_jobs
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.sql_text import refuse_sql
from airflow_occ_provider.attempts.typed_values import has_template
from airflow_occ_provider.attempts.write_spec import refuse_unqueued
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator
from airflow_occ_provider.task.lineage import table_to_write, written_table

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy


class HudiWriteOperator(HudiSparkOperator):
    """Run a Spark job as a safe concurrent writer of one Hudi table.

    It is a ``SparkSubmitOperator`` with a table: the job is yours, unmodified, and the arguments of that
    operator still work, except a few that cannot be made safe. The job is a PySpark file
    (``application``), a class with a ``main`` (``java_class``, and its jar as ``application``) or
    ``sql``. Optimistic concurrency control, the
    lock, early conflict detection and lazy cleaning reach the job through Hudi's own global
    configuration. A driver that does not read it never runs the job. The operator reads the attempt's
    outcome from the table, retries a conflict, and never repeats a commit that this task run has made.

    The operator ends a driver whose write another process rolls back, or whose heartbeat can never tick
    again. It does not end a driver with a heartbeat that is only late or expired, but logs that.

    :param table: base path of the table that the job writes, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param sql: the job as Spark SQL, a text or the path of an ``.sql`` file: statements of which one
        writes the table. (templated)
    :param table_name: the name of the table in ``sql``; by default the one in its
        ``hoodie.properties``. (templated)
    :param scope: the partitions that the job will touch, each with all below it, such as
        ``["dt=2026-11-21"]``: it writes them alone, beside writers of other partitions. Default:
        unknown. Then it writes optimistically beside other writers of unknown scope, and alone after a
        lost conflict. (templated)
    :param learn_scope: whether a task without ``scope`` is queued with other tasks that learn, if the
        last runs of each changed the same file groups. Hudi's check still decides. Not used with
        ``isolation="serializable"`` or a lock of one process.
    :param isolation: ``"snapshot"``, where Hudi's commit check decides, or ``"serializable"``. The check
        sees neither two inserts of the same new key nor a rival's commit between what the job reads from
        the table and what it writes (MERGE, UPDATE, SCD2). A serializable job writes its scope alone,
        and is stopped if it loses its lease; all writers of such keys should be serializable. ``sql``
        implies it where its text reads the table. (templated)
    :param admission: ``"queue"`` to be queued for the table before the job runs, without a worker
        slot, or ``"off"`` to run at once.
    :param admission_timeout: how long to wait in the queue, and for rivals outside it, before the task
        fails.
    :param preflight_timeout: how long to wait at most, before the driver starts, for pending writes of
        others and clusterings in the job's partitions that it would lose to; then it starts all the
        same. ``timedelta(0)`` to start at once.
    :param storage_conn_id: Airflow connection of the table's storage, for reading its metadata; by
        default the credentials that the worker itself has. (templated)
    :param early_conflict_detection: whether Hudi looks for rivals while it writes, not only when it
        commits: ``"off"``, ``"on"`` (the strategy that suits the storage), or one of Hudi's own:
        ``"simple_direct"``, ``"transaction_direct"``, ``"timeline_server"``.
    :param conflict_resolution: Hudi's conflict resolution strategy: ``"simple"``,
        ``"bucket_index"``, or ``"prefer_writer"``, which all writers and table services of the table
        must share; by default the one that Hudi infers from the index.
    :param early_stop: what happens once it is certain that Hudi will refuse the commit, because a rival
        has completed, or once another task's earlier write turns out to overlap: ``"act"``
        (the driver is ended, and the task queued), ``"observe"`` (it is logged, and compared with what
        Hudi then does), or ``"off"``. A trigger that watches the driver looks for completed rivals only.
    :param hudi_options: further Hudi options for the job: a dictionary, or a template that renders to
        one. (templated)
    :param commits: ``"one"`` if the job makes one commit, or none: no try runs it again after that,
        and the task fails if the job fails after its commit, or makes several. ``"many"`` if it makes
        several (``foreachBatch``, several tables, delete then upsert, a loop): until it has ended well,
        each try runs it again as a whole, which its keys or its checkpoint must make safe.
    :param require_commit: whether the task fails if the job succeeds but writes nothing. By default it
        fails if the job writes other tables and not this one; ``False`` allows that too.
    :param start_timeout: how long to wait until the driver's job begins; then the driver is ended, and
        the task retried. By default half an hour while ``spark-submit`` runs on the worker, and twelve
        hours while the driver waits in its cluster.
    :param survivor_timeout: how long to wait, without a worker slot, for the driver of an earlier try
        whose end was not seen and that still writes; then the task fails as *commit state unknown*.
    :param deferrable: whether the task gives its worker slot back while its driver runs, if the driver
        outlives the task's process (cluster mode). A trigger then renews the lease and watches the
        driver until its end.
    :param name: of the Spark application; by default its DAG, task and run, unless ``conf`` has
        ``spark.app.name``. (templated)
    :param retries: how often the job's own errors are retried. Conflicts, lost locks, killed drivers and
        failures of the infrastructure have budgets of their own, which come on top.
    :param retry_policy: a ``HudiConflictRetryPolicy`` with other budgets or waits, or any other retry
        policy, which then decides on the job's own errors.

    The result is a dictionary: ``instant``, ``action``, ``operation``, ``partitions``,
    ``file_groups``, ``records``, ``seconds``; ``instant`` is ``None`` if nothing was written.
    Every outlet's asset event carries the same facts; an asset alias gets an
    event of the asset at the table's path, if something was written.
    Of more than 1000 partitions, ``partitions`` names the first, and ``partitions_left_out`` counts
    the rest.
    """

    template_fields: Sequence[str] = (
        *(*HudiSparkOperator.template_fields, "scope", "sql", "table_name", "isolation"),
    )
    ui_color = "#d6ecf7"
    get_openlineage_facets_on_start = table_to_write
    get_openlineage_facets_on_complete = written_table

    def __init__(
        self,
        *,
        table: str,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        sql: str | None = None,
        table_name: str | None = None,
        scope: str | Sequence[str] | None = None,
        learn_scope: bool = False,
        isolation: Isolation | str = Isolation.SNAPSHOT,
        admission: bool | AdmissionMode | str = AdmissionMode.QUEUE,
        admission_timeout: timedelta = timedelta(hours=12),
        preflight_timeout: timedelta = timedelta(hours=1),
        storage_conn_id: str | None = None,
        early_conflict_detection: bool | EarlyDetection | str = EarlyDetection.ON,
        conflict_resolution: Strategy | str | None = None,
        early_stop: EarlyStop | str = EarlyStop.ACT,
        hudi_options: Mapping[str, Any] | str | None = None,
        commits: Commits | str = Commits.ONE,
        require_commit: bool | None = None,
        start_timeout: timedelta | None = None,
        survivor_timeout: timedelta = timedelta(hours=12),
        deferrable: bool = True,
        name: str | None = None,
        retries: int | None = None,
        retry_policy: RetryPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, retries=retries, retry_policy=retry_policy, **kwargs)
        self.sql = sql
        self.table_name = table_name
        self.template_ext = (".sql",) if sql else ()  # arguments that end in it stay as they are
        self.table = table
        self.lock_conn_id = lock_conn_id
        self.scope = scope
        self.learn_scope = learn_scope
        self.isolation = isolation
        self.admission = choice("admission", AdmissionMode, admission)
        self.admission_timeout = admission_timeout
        self.preflight_timeout = preflight_timeout
        self.storage_conn_id = storage_conn_id
        self.early_conflict_detection = choice(
            "early_conflict_detection", EarlyDetection, early_conflict_detection
        )
        self.conflict_resolution = resolution_choice(conflict_resolution)
        self.early_stop = choice("early_stop", EarlyStop, early_stop)
        self.hudi_options = hudi_options
        self.commits = choice("commits", Commits, commits)
        self.require_commit = require_commit
        self.start_timeout = start_timeout
        self.survivor_timeout = survivor_timeout
        self.deferrable = deferrable
        refuse_two_jobs(
            sql,
            application=self.application,
            java_class=self._java_class,
            application_args=self.application_args,
        )
        self.take_arguments()
        refuse_unqueued(self.isolation, is_queued=self.admission is not AdmissionMode.OFF)
        if sql and not sql.endswith(".sql") and not has_template([sql, table, table_name]):
            refuse_sql(sql, table, table_name)

    def job(self, context: Context) -> Job:  # noqa: ARG002
        """Return the task's own job."""
        arguments = tuple(self.application_args or ())
        if self.sql:
            return Sql(self.sql, self.table, self.table_name)
        if self._java_class:
            return MainClass(self._java_class, self.application or "", arguments)
        return PythonFile(self.application, arguments)
