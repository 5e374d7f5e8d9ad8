"""``HudiStreamerOperator``: one round of Hudi Streamer as a safe writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.jobs import Job, MainClass, streamer_arguments
from airflow_occ_provider.attempts.write_spec import refuse_foreign
from airflow_occ_provider.in_driver.run_main import STREAMER
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiStreamerOperator(HudiWriteOperator):
    """Run one round of Hudi Streamer as a safe concurrent writer of one table.

    The source's and the key generator's options are ``hudi_options``. Hudi Streamer writes its own
    checkpoint, and not the task run's signature, into its commits: they are found by the instants that
    the driver reports. A round makes one commit; Streamer's checkpoint makes it safe to run it again
    after that, with ``commits="many"``. Continuous mode is refused. The result and the other parameters
    are those of ``HudiWriteOperator``, and so is what a kill, a clear, a retry and a time-out do::

        HudiStreamerOperator(
            task_id="trips",
            table="s3a://lake/trips",
            source_class="org.apache.hudi.utilities.sources.ParquetDFSSource",
            source_ordering_field="ts",
            hudi_options={"hoodie.streamer.source.dfs.root": "s3a://raw/trips"},
        )

    :param target_table: name of the table; by default the last part of its path. (templated)
    :param application: jar with Hudi Streamer, such as ``hudi-utilities-slim-bundle``; empty if ``jars``
        or ``packages`` bring it. (templated)
    :param source_class: class of the source; by default Hudi's own default. (templated)
    :param source_ordering_field: by which the younger of two rows with one key is known. (templated)
    :param table_type: ``"COPY_ON_WRITE"``, or ``"MERGE_ON_READ"`` without compaction in this task.
    :param op: ``"upsert"``, or another of Hudi's operations.
    :param streamer_args: further arguments of Hudi Streamer, one word each. (templated)
    """

    template_fields: Sequence[str] = (
        *HudiWriteOperator.template_fields,
        *("target_table", "source_class", "source_ordering_field", "streamer_args"),
    )

    def __init__(
        self,
        *,
        target_table: str | None = None,
        application: str = "",
        source_class: str | None = None,
        source_ordering_field: str | None = None,
        table_type: str = "COPY_ON_WRITE",
        op: str = "upsert",
        streamer_args: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        refuse_foreign(kwargs, ("java_class", "application_args"), "is Hudi Streamer's own")
        kwargs |= {"application": application, "java_class": STREAMER}
        super().__init__(**kwargs)
        self.target_table = target_table
        self.source_class = source_class
        self.source_ordering_field = source_ordering_field
        self.table_type = table_type
        self.op = op
        self.streamer_args = streamer_args
        self.take_arguments()

    def job(self, context: Context | None = None) -> Job:  # noqa: ARG002
        """Return Hudi Streamer with its arguments."""
        name = self.target_table or self.table.rstrip("/").rpartition("/")[2]
        source = self.source_class
        ordering = self.source_ordering_field
        fixed = streamer_arguments(
            self.table, name, self.table_type, source=source, ordering=ordering, operation=self.op
        )
        return MainClass(STREAMER, self.application or "", (*fixed, *self.streamer_args))
