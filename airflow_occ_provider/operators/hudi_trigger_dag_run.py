"""``HudiTriggerDagRunOperator``: starts one run of a DAG per commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_occ_provider.assets.commit_runs import (
    carry_out,
    instants_of,
    planned_runs,
    refuse_unusable_name,
)
from airflow_occ_provider.assets.consumers import Consumer, consumer_asset, failing_for_good
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.reading.new_commits import CommitFilter, beginning, seen_before
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.task.arguments import TypedArguments

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_occ_provider.storage.snapshot import Snapshot


class HudiTriggerDagRunOperator(TypedArguments, BaseOperator):
    """An operator that starts one run of a DAG for each new commit of a table.

    It reads the table, not its own asset events, so that it misses no commit whose event Airflow gave to
    another run. The id of a run is ``hudi__``, the consumer and the instant: however often the task is
    tried, a commit has one run. The run's configuration has the ``table`` and its ``commits``, as in the
    events of ``HudiCommitTrigger``. A run of a paused DAG waits for it. Without a new commit the task is
    skipped. Only one task of an operator runs at a time::

        HudiTriggerDagRunOperator(
            task_id="start", trigger_dag_id="of_each_commit", table="s3a://lake/trips"
        )

    A kill or a time-out ends the task between two runs; those that it has started run on. A retry starts
    the others, and so does a clear: neither starts a run twice.

    :param trigger_dag_id: the DAG to run, with ``schedule=None``. (templated)
    :param table: base path of the table. (templated)
    :param consumer: name under which it keeps which commits have a run, with the asset
        ``hudi_consumer_`` and this name, which becomes an outlet. Two operators need two names. Default:
        ``runs_of_`` and ``trigger_dag_id``; a templated one needs a name.
    :param per: ``"commit"`` for one run per commit, ``"batch"`` for one of up to 200.
    :param start: where it begins in its first run: ``"event"`` with the first commit of the asset events
        that started it (without any, with the next commit), ``"earliest"`` with the oldest one of the
        active timeline, or after the requested time of an instant.
    :param partitions: partition paths, each with everything below it, of which a commit has to write
        one. Default: any. (templated)
    :param operations: Hudi's operation types, such as ``["upsert"]``. Default: any. (templated)
    :param signed: labels that a commit's signature has to have, such as ``dag_id``. (templated)
    :param storage_conn_id: Airflow connection of the table's storage. Default: the worker's own
        credentials. (templated)
    :param retries: as for any operator.
    :param retry_delay: as for any operator.
    :param outlets: further outlets.
    :param max_active_tis_per_dag: as for any operator.
    """

    template_fields: Sequence[str] = (
        *("trigger_dag_id", "table", "partitions", "operations", "signed", "storage_conn_id"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "partitions": "json",
        "operations": "json",
        "signed": "json",
    }
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        trigger_dag_id: str,
        table: str,
        consumer: str | None = None,
        per: Literal["commit", "batch"] = "commit",
        start: str = "event",
        partitions: str | Sequence[str] = (),
        operations: str | Sequence[str] = (),
        signed: Mapping[str, str] | None = None,
        storage_conn_id: str | None = None,
        retries: int | None = 2,
        retry_delay: timedelta | float = timedelta(minutes=1),
        outlets: Sequence[Any] | None = None,
        max_active_tis_per_dag: int | None = 1,
        **kwargs: Any,
    ) -> None:
        self.consumer = consumer or f"runs_of_{trigger_dag_id}"
        kwargs |= {"retries": retries, "retry_delay": retry_delay}
        kwargs |= {"outlets": [*(outlets or ()), consumer_asset(self.consumer)]}
        super().__init__(max_active_tis_per_dag=max_active_tis_per_dag, **kwargs)
        if per not in ("commit", "batch"):
            raise ConfigurationError("per", repr(per), remedy="use commit or batch")
        refuse_unusable_name(self.consumer)
        self.trigger_dag_id = trigger_dag_id
        self.table = table
        self.per = per
        self.start = start
        self.partitions = partitions
        self.operations = operations
        self.signed = signed
        self.storage_conn_id = storage_conn_id
        self.take_arguments()

    def execute(self, context: Context) -> list[str]:
        """Start the runs, and return their ids.

        :raises AirflowSkipException: if there is no new commit.
        :raises AirflowFailException: if no retry can help.
        """
        with failing_for_good():
            started = self._start_runs(context)
        if not started:
            raise AirflowSkipException(f"{self.table} has no new commit")
        return started

    def _start_runs(self, context: Context) -> list[str]:
        table = canonical_table(self.table)
        snapshot = open_table(self.table, self.storage_conn_id).snapshot(missing_ok=True)
        wanted = CommitFilter.of(self.partitions, self.operations, self.signed)
        state = context["asset_state_store"][consumer_asset(self.consumer)]
        purpose = f"runs of {self.trigger_dag_id} for {wanted.description}"
        consumer = Consumer(self.consumer, state, table, purpose)
        since = consumer.checkpoint() or self._begin(context, consumer, snapshot)
        started = list[str]()
        while True:
            plan = planned_runs(consumer, since, snapshot, wanted, per_commit=self.per == "commit")
            if plan.after == since:
                return started
            carry_out(consumer, plan, self.trigger_dag_id)
            since = plan.after
            started = [*started, *(run.run_id for run in plan.runs)]

    def _begin(self, context: Context, consumer: Consumer, snapshot: Snapshot) -> Checkpoint:
        """Return and keep the checkpoint of a first run."""
        if self.start == "event":
            events = context["triggering_asset_events"]
            timeline = snapshot.timeline
            since = seen_before(snapshot, [*instants_of(events, consumer.table, timeline)])
        else:
            since = beginning(snapshot, self.start)
        consumer.keep(since)
        return since
