"""``HudiCompactionOperator``: compacts a merge-on-read table beside its writers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.choices import (
    choice,
    refuse_foreign,
)
from airflow_occ_provider.attempts.service_plans import ServiceTask, named_plans, refuse_instants
from airflow_occ_provider.attempts.service_run import FOREIGN, serve
from airflow_occ_provider.hudi.writer.table_service import DeadPlan, Service, ServiceOp
from airflow_occ_provider.in_driver import table_service as service_job
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiCompactionOperator(HudiSparkOperator):
    """Plan and run a merge-on-read table's compaction; resolve plans of dead drivers.

    It is a ``SparkSubmitOperator`` without an application: Hudi's write client plans and compacts,
    with the writers' lock and heartbeat. A table of version 9 is compacted beside its writers, which
    ignore compactions. Writers of older tables, and writers with
    ``conflict_resolution="prefer_writer"``, lose to a compaction that was planned after they had begun:
    for those the task is queued, and runs alone.

    Further parameters are those of ``HudiSparkOperator``::

        HudiCompactionOperator(task_id="compaction", table="s3a://lake/trips")

    A kill, or a time-out of the task, ends the driver, and its plan stays pending. A retry, or a clear
    after a failure, waits for the driver's end and completes the plan, or rolls it back if it can no
    longer be run. Other tasks treat it by ``dead_plan``.

    :param op: ``"schedule"`` to make a plan, ``"run"`` to run the pending plans, or
        ``"schedule_and_run"``.
    :param instants: requested times of the plans to run, and no others, such as another task's
        ``scheduled``; with ``op="run"``. (templated)
    :param dead_plan: what to do with a plan that no process runs: ``"run"`` to run it again,
        ``"roll_back"`` to remove it with all that it has left, ``"leave"`` to only log it. A log
        compaction cannot be run again: it is rolled back.
    :param plan_timeout: how long a plan stays requested or inflight, without a live heartbeat, until
        it counts as dead. Before Hudi 1.2 compactions have no heartbeat: set it longer than the longest
        one. A task that has to run such a plan waits until then, without a worker slot.

    The result is a dictionary: ``scheduled``, ``completed``, ``rolled_back`` and ``left`` (still
    pending), lists of requested times, and ``seconds``.
    """

    template_fields: Sequence[str] = (*HudiSparkOperator.template_fields, "instants")
    ui_color = "#e4e9f7"
    service = Service.COMPACTION

    def __init__(
        self,
        *,
        op: ServiceOp | str = ServiceOp.SCHEDULE_AND_RUN,
        instants: str | Sequence[str] | None = None,
        dead_plan: DeadPlan | str = DeadPlan.RUN,
        plan_timeout: timedelta = timedelta(hours=1),
        **kwargs: Any,
    ) -> None:
        refuse_foreign(kwargs, FOREIGN, "a table service has none: it runs a job of ours")
        refuse_foreign(kwargs, ["scope"], "Hudi compacts what its plan names")
        super().__init__(
            application=service_job.__file__,
            application_args=None,  # named, so that default_args for writers do not reach it
            **kwargs,
        )
        self.op = choice("op", ServiceOp, op)
        self.instants = instants
        self.dead_plan = choice("dead_plan", DeadPlan, dead_plan)
        self.plan_timeout = plan_timeout
        refuse_instants(instants, self.op)
        self.take_arguments()

    def _steps(self, context: Context) -> dict[str, Any]:
        run = self._protected_run(context)
        self._tell_people(context)
        return serve(run, self._service_task())

    def _service_task(self) -> ServiceTask:
        named = named_plans(self.instants)
        return ServiceTask(self.service, self.op, self.dead_plan, self.plan_timeout, named)
