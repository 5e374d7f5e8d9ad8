"""``HudiWriteOperator``: a Spark job as a safe concurrent writer of one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.jobs import Job, MainClass, PythonFile
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.scope import Isolation
from airflow_occ_provider.attempts.write_spec import choice, refuse_unqueued
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator
from airflow_occ_provider.task.lineage import table_to_write, written_table

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiWriteOperator(HudiSparkOperator):
    """Run a Spark job as a safe concurrent writer of one Hudi table.

    It is a ``SparkSubmitOperator`` with a table: the job is yours, unmodified, and the arguments of that
    operator still work, except a few that cannot be made safe. The job is a PySpark file
    (``application``), or a class with a ``main`` (``java_class``, and its jar as ``application``); for
    SQL there is ``HudiSqlOperator``. Optimistic concurrency control, the lock, early conflict detection
    and lazy cleaning reach the job through Hudi's own global configuration. A driver that does not read
    it never runs the job. The operator reads the attempt's outcome from the table, retries a conflict,
    and never repeats a commit that this task run has made::

        HudiWriteOperator(
            task_id="trips",
            application="jobs/upsert_trips.py",
            table="s3a://lake/trips",
            scope=["dt={{ ds }}"],
        )

    The operator ends a driver whose write another process rolls back, or whose heartbeat can never tick
    again. It does not end a driver with a heartbeat that is only late or expired, but logs that.

    - A **kill** (the task is marked or cleared, or its worker is stopped) ends the driver with all
      that it started. A driver that runs elsewhere is revoked; the next try waits until its end is
      proven.
    - A **clear** after a success runs the job again. After a failure it continues as a retry; a commit
      that was made with other arguments then fails the task, with both ways out.
    - A **retry** settles the earlier tries first. If one has committed, that commit is the result. A
      driver that has outlived its task is followed to its end, not started again.
    - A **time-out** of the task (``execution_timeout``) ends the driver; the try is retried by a
      budget of its own. A wait that is longer than ``wait_timeout`` fails the task before a driver was
      started.

    Further parameters are those of ``HudiSparkOperator``.

    :param scope: the partitions that the job will touch, each with all below it, such as
        ``["dt=2026-11-21"]``: it writes them alone, beside writers of other partitions. Default: the
        partition of the run's partition key, if it has one that the table shows to be one; else
        unknown. Then it writes optimistically beside other writers of unknown scope, and alone after a
        lost conflict. (templated)
    :param isolation: ``"snapshot"``, where Hudi's commit check decides, or ``"serializable"``. The check
        sees neither two inserts of the same new key nor a rival's commit between what the job reads from
        the table and what it writes (MERGE, UPDATE, SCD2). A serializable job writes its scope alone,
        and is stopped if it loses its lease; all writers of such keys should be so. (templated)
    :param commits: ``"one"`` if the job makes one commit, or none: no try runs it again after that,
        and the task fails if the job fails after its commit, or makes several. ``"many"`` if it makes
        several (``foreachBatch``, several tables, delete then upsert, a loop): until it has ended well,
        each try runs it again as a whole, which its keys or its checkpoint must make safe.
    :param require_commit: whether the task fails if the job succeeds but writes nothing. By default it
        fails if the job writes other tables and not this one; ``False`` allows that too.
    :param start_timeout: how long to wait until the driver's job begins; then the driver is ended, and
        the task retried. By default half an hour while ``spark-submit`` runs on the worker, and twelve
        hours while the driver waits in its cluster.
    :param deferrable: whether the task gives its worker slot back while its driver runs, if the driver
        outlives the task's process (cluster mode). A trigger then renews the lease and watches the
        driver until its end.

    The result is a dictionary: ``instant``, ``action``, ``operation``, ``partitions``,
    ``file_groups``, ``records``, ``seconds``; ``instant`` is ``None`` if nothing was written.
    Every outlet's asset event carries the same facts; an asset alias gets an
    event of the asset at the table's path, if something was written.
    Of more than 1000 partitions, ``partitions`` names the first, and ``partitions_left_out`` counts
    the rest.
    """

    template_fields: Sequence[str] = (*(*HudiSparkOperator.template_fields, "scope", "isolation"),)
    ui_color = "#d6ecf7"
    get_openlineage_facets_on_start = table_to_write
    get_openlineage_facets_on_complete = written_table

    def __init__(
        self,
        *,
        scope: str | Sequence[str] | None = None,
        isolation: Isolation | str = Isolation.SNAPSHOT,
        commits: Commits | str = Commits.ONE,
        require_commit: bool | None = None,
        start_timeout: timedelta | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scope = scope
        self.isolation = isolation
        self.commits = choice("commits", Commits, commits)
        self.require_commit = require_commit
        self.start_timeout = start_timeout
        self.deferrable = deferrable
        self.refuse_missing_job()
        self.take_arguments()
        refuse_unqueued(self.isolation, is_queued=self.is_queued)

    def refuse_missing_job(self) -> None:
        """Refuse a task without a job.

        :raises ConfigurationError: then.
        """
        if not (self.application or self._java_class):
            raise ConfigurationError(
                "application", "there is no job", remedy="give application, or use HudiSqlOperator"
            )

    def job(self, context: Context) -> Job:  # noqa: ARG002
        """Return the task's own job."""
        arguments = tuple(self.application_args or ())
        if self._java_class:
            return MainClass(self._java_class, self.application or "", arguments)
        return PythonFile(self.application, arguments)
