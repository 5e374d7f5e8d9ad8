"""``HudiStreamerOperator``: one round of Hudi Streamer as a safe writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.choices import (
    AdmissionMode,
    choice,
    refuse_foreign,
    resolution_choice,
)
from airflow_occ_provider.attempts.claim import Isolation
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.jobs import Job, MainClass
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.streamer import streamer_arguments
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.in_driver.run_main import STREAMER
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator
from airflow_occ_provider.task.lineage import table_to_write, written_table

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy


class HudiStreamerOperator(HudiSparkOperator):
    """Run one round of Hudi Streamer as a safe concurrent writer of one table.

    The source's and the key generator's options are ``hudi_options``. Hudi Streamer writes its own
    checkpoint, and not the task run's signature, into its commits: they are found by the instants that
    the driver reports. The result, the retries and the other arguments are those of
    ``HudiWriteOperator``. Continuous mode is refused.

    :param table: base path of the table, absolute or a URL. (templated)
    :param target_table: name of the table; by default the last part of its path. (templated)
    :param application: jar with Hudi Streamer, such as ``hudi-utilities-slim-bundle``; empty if ``jars``
        or ``packages`` bring it. (templated)
    :param source_class: class of the source; by default Hudi's own default. (templated)
    :param source_ordering_field: by which the younger of two rows with one key is known. (templated)
    :param table_type: ``"COPY_ON_WRITE"``, or ``"MERGE_ON_READ"`` without compaction in this task.
    :param op: ``"upsert"``, or another of Hudi's operations.
    :param streamer_args: further arguments of Hudi Streamer, one word each. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param scope: as in ``HudiWriteOperator``. (templated)
    :param isolation: as in ``HudiWriteOperator``.
    :param admission: ``"queue"``, or ``"off"`` to run at once.
    :param admission_timeout: how long to wait in the queue, and for rivals outside it.
    :param preflight_timeout: as in ``HudiWriteOperator``.
    :param storage_conn_id: Airflow connection of the table's storage. (templated)
    :param early_conflict_detection: as in ``HudiWriteOperator``.
    :param conflict_resolution: as in ``HudiWriteOperator``.
    :param early_stop: as in ``HudiWriteOperator``.
    :param hudi_options: Hudi's options, those of the source included. (templated)
    :param commits: as in ``HudiWriteOperator``. A round makes one commit; Streamer's checkpoint makes it
        safe to run it again after that, with ``"many"``.
    :param require_commit: whether the task fails if the round commits nothing.
    :param start_timeout: as in ``HudiWriteOperator``.
    :param survivor_timeout: how long to wait for a driver of an earlier try.
    :param deferrable: as in ``HudiWriteOperator``.
    :param name: of the Spark application. (templated)
    :param retries: as for ``HudiWriteOperator``.
    :param retry_policy: as for ``HudiWriteOperator``.
    """

    template_fields: Sequence[str] = (
        *HudiSparkOperator.template_fields,
        *("scope", "target_table", "source_class", "source_ordering_field", "streamer_args"),
    )
    ui_color = "#d6ecf7"
    get_openlineage_facets_on_start = table_to_write
    get_openlineage_facets_on_complete = written_table

    def __init__(
        self,
        *,
        table: str,
        target_table: str | None = None,
        application: str = "",
        source_class: str | None = None,
        source_ordering_field: str | None = None,
        table_type: str = "COPY_ON_WRITE",
        op: str = "upsert",
        streamer_args: Sequence[str] = (),
        lock_conn_id: str = HudiLockHook.default_conn_name,
        scope: str | Sequence[str] | None = None,
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
        refuse_foreign(kwargs, ("java_class", "application_args"), "is Hudi Streamer's own")
        kwargs |= {"application": application, "java_class": STREAMER}
        super().__init__(name=name, retries=retries, retry_policy=retry_policy, **kwargs)
        self.table = table
        self.target_table = target_table
        self.source_class = source_class
        self.source_ordering_field = source_ordering_field
        self.table_type = table_type
        self.op = op
        self.streamer_args = streamer_args
        self.lock_conn_id = lock_conn_id
        self.scope = scope
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
        self.take_arguments()

    def job(self, context: Context | None = None) -> Job:  # noqa: ARG002
        """Return Hudi Streamer with its arguments."""
        name = self.target_table or self.table.rstrip("/").rpartition("/")[2]
        source, ordering = self.source_class, self.source_ordering_field
        fixed = streamer_arguments(
            self.table, name, self.table_type, source=source, ordering=ordering, operation=self.op
        )
        return MainClass(STREAMER, self.application or "", (*fixed, *self.streamer_args))
