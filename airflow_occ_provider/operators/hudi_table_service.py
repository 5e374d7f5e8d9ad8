"""``HudiTableServiceOperator``: compaction and clustering beside writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_occ_provider.attempts.service_attempt import (
    PARTITION_OPTIONS,
    ServiceTask,
    named_plans,
    refuse_instants,
    serve,
)
from airflow_occ_provider.attempts.write_spec import choice, refuse_foreign
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.table_service import DeadPlan, Service, ServiceOp
from airflow_occ_provider.in_driver import table_service as service_job
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiTableServiceOperator(HudiSparkOperator):
    """Plan and run a service of one table, and resolve plans of dead drivers.

    It is a ``SparkSubmitOperator`` without an application: Hudi's write client plans and runs the
    service, with the writers' lock. A subclass names the service.

    :param op: ``"schedule"`` to make a plan, ``"run"`` to run the pending plans, or
        ``"schedule_and_run"``.
    :param instants: requested times of the plans to run, and no others, such as another task's
        ``scheduled``; with ``op="run"``. (templated)
    :param dead_plan: what to do with a plan that no process runs: ``"run"`` to run it again,
        ``"roll_back"`` to remove it with all that it has left, ``"leave"`` to only log it.
    :param plan_timeout: how long a plan stays requested or inflight, without a live heartbeat, until
        it counts as dead. A task that has to run such a plan waits until then, without a worker slot.

    The result is a dictionary: ``scheduled``, ``completed``, ``rolled_back`` and ``left`` (still
    pending), lists of requested times, and ``seconds``.
    """

    template_fields: Sequence[str] = (*HudiSparkOperator.template_fields, "instants")
    ui_color = "#e4e9f7"
    program = service_job.__file__
    service: ClassVar[Service]

    def __init__(
        self,
        *,
        op: ServiceOp | str = ServiceOp.SCHEDULE_AND_RUN,
        instants: str | Sequence[str] | None = None,
        dead_plan: DeadPlan | str = DeadPlan.RUN,
        plan_timeout: timedelta = timedelta(hours=1),
        **kwargs: Any,
    ) -> None:
        if self.service is None:
            raise ConfigurationError(
                "service",
                f"{type(self).__name__} names none",
                remedy="use HudiCompactionOperator or HudiClusteringOperator",
            )
        super().__init__(**kwargs)
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


class HudiCompactionOperator(HudiTableServiceOperator):
    """Plan and run the compaction of a merge-on-read table, and resolve dead plans.

    A table of version 9 is compacted beside its writers, which ignore compactions. Writers of older
    tables, and writers with ``conflict_resolution="prefer_writer"``, lose to a compaction that was
    planned after they had begun: for those the task is queued, and runs alone.

    A log compaction of a dead driver cannot be run again: it is rolled back, unless
    ``dead_plan="leave"``. Before Hudi 1.2 compactions have no heartbeat: set ``plan_timeout`` longer
    than the longest one.

    Further parameters are those of ``HudiTableServiceOperator`` and ``HudiSparkOperator``::

        HudiCompactionOperator(task_id="compaction", table="s3a://lake/trips")

    A kill, or a time-out of the task, ends the driver, and its plan stays pending. A retry, or a clear
    after a failure, waits for the driver's end and completes the plan, or rolls it back if it can no
    longer be run. Other tasks treat it by ``dead_plan``.
    """

    service = Service.COMPACTION

    def __init__(self, **kwargs: Any) -> None:
        refuse_foreign(kwargs, ["scope"], "Hudi compacts what its plan names")
        super().__init__(**kwargs)


class HudiClusteringOperator(HudiTableServiceOperator):
    """Plan and run the clustering of one table, and resolve plans of dead drivers.

    A pending clustering rejects upserts of its file groups, and by Hudi's default its rivals also lose
    at their commit. So the task holds its scope alone, and writers of this provider are queued. With
    ``conflict_resolution="prefer_writer"``, for the writers as well, it runs beside them and yields to
    them; after a lost conflict it runs alone.

    A dead plan rejects writers for ever. One whose file groups were written since is always rolled
    back, as it would undo that write. Clusterings have no heartbeat: set ``plan_timeout`` longer than
    the longest one outside the queue; with ``"prefer_writer"``, when clusterings run beside each other,
    longer than any.

    Further parameters are those of ``HudiTableServiceOperator`` and ``HudiSparkOperator``::

        HudiClusteringOperator(task_id="clustering", table="s3a://lake/trips", scope=["dt={{ ds }}"])

    A kill, or a time-out of the task, ends the driver, and its plan stays pending. A retry, or a clear
    after a failure, waits for the driver's end and completes the plan, or rolls it back if it can no
    longer be run. Other tasks treat it by ``dead_plan``.

    :param scope: the partitions to cluster, each with all below it; by default the table. (templated)
    """

    template_fields: Sequence[str] = (*HudiTableServiceOperator.template_fields, "scope")
    service = Service.CLUSTERING

    def __init__(self, *, scope: str | Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scope = scope
        self.take_arguments()

    def refuse_options(self, options: Mapping[str, Any]) -> None:
        """Refuse Hudi options that contradict the operator's parameters.

        :param options: as far as they are known.
        :raises ConfigurationError: with the wrong option, and the remedy.
        """
        super().refuse_options(options)
        for key in options:
            if key.startswith(PARTITION_OPTIONS):
                raise ConfigurationError(
                    "hudi_options", f"{key} has a parameter of its own", remedy="use scope"
                )
