"""``HudiIncrementalReadOperator``: runs a job on what is new in a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]
from airflow.sdk.exceptions import AirflowSkipException

from airflow_occ_provider.assets.consumers import Consumer, consumer_asset, failing_for_good
from airflow_occ_provider.attempts.write_spec import choice
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.hudi.incremental.window import MOST_COMMITS, Release
from airflow_occ_provider.reading.new_commits import all_seen
from airflow_occ_provider.storage.address import canonical_table, is_one_table
from airflow_occ_provider.storage.incremental import incremental_read
from airflow_occ_provider.task.arguments import TypedArguments
from airflow_occ_provider.task.lineage import table_to_read

if TYPE_CHECKING:
    from airflow.sdk import Context

WINDOW_CONF = "spark.hudi.window"
_PLAN_KEY = "hudi_incremental_read"


class HudiIncrementalReadOperator(TypedArguments, SparkSubmitOperator):
    """A ``SparkSubmitOperator`` whose job gets the commits not read yet.

    Its further arguments are those of ``SparkSubmitOperator``::

        HudiIncrementalReadOperator(
            task_id="read_trips",
            application="jobs/new_trips.py",
            table="s3a://lake/trips",
            consumer="fares",
        )

    The job finds the commits in Spark's configuration, as JSON with ``table``, ``options``,
    ``predicate``, ``commits``, ``scan``, ``start`` and ``end``::

        window = json.loads(spark.conf.get("spark.hudi.window"))
        rows = spark.read.format("hudi").options(**window["options"]).load(window["table"])
        rows = rows.where(window["predicate"])

    The checkpoint moves after the job has succeeded. A kill and a time-out end the job as they do for
    any ``SparkSubmitOperator``, and do not move it. A retry gets the same window, and so does a clear:
    a job whose target can be written twice with the same rows loses none and doubles none. If there is
    nothing to read, the task is skipped. Let one run at a time read (``max_active_runs=1``).

    :param table: base path of the table. (templated)
    :param consumer: name of the consumer; its checkpoint is kept with the asset ``hudi_consumer_`` and
        this name, which becomes an outlet of the task.
    :param release: of the Hudi that reads: ``"0.15"``, ``"1.0"`` or ``"1.2"`` (also for 1.1).
    :param start: where a consumer begins that has no checkpoint: ``"earliest"`` with all rows of the
        table, ``"latest"`` with the commits after its first run.
    :param most_commits: of one run, at most.
    :param storage_conn_id: Airflow connection of the table's storage. Default: the worker's own
        credentials. (templated)
    :param retries: as for any operator.
    :param retry_delay: as for any operator.
    :param outlets: further outlets.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        *("table", "storage_conn_id", "window"),
    )
    ui_color = "#d6ecf7"
    get_openlineage_facets_on_start = table_to_read

    def __init__(
        self,
        *,
        table: str,
        consumer: str,
        release: Release | str = Release.V1_2,
        start: Literal["earliest", "latest"] = "earliest",
        most_commits: int = MOST_COMMITS,
        storage_conn_id: str | None = None,
        retries: int | None = 2,
        retry_delay: timedelta | float = timedelta(minutes=1),
        outlets: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        assets = [*(outlets or ()), consumer_asset(consumer)]
        super().__init__(outlets=assets, retries=retries, retry_delay=retry_delay, **kwargs)
        self.table = table
        self.consumer = consumer
        self.release = choice("release", Release, release)
        self.start = start
        self.most_commits = most_commits
        self.storage_conn_id = storage_conn_id
        self.window: dict[str, Any] = {}
        self.take_arguments()

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan the window, run the job, and move the checkpoint.

        :raises AirflowFailException: if no retry can help, such as after another run of the consumer.
        :raises AirflowSkipException: if there is nothing to read.
        """
        with failing_for_good():
            return self._read(context)

    def _read(self, context: Context) -> dict[str, Any]:
        state = context["asset_state_store"][consumer_asset(self.consumer)]
        consumer = Consumer(self.consumer, state, canonical_table(self.table))
        plans = context["task_state_store"]
        plan: Any = plans.get(_PLAN_KEY)
        if plan is None or not is_one_table(plan["window"]["table"], self.table):
            plan = self._plan(consumer)
            plans.set(_PLAN_KEY, plan, retention=NEVER_EXPIRE)
        before = Checkpoint.from_json(plan["before"]) if plan["before"] else None
        after = Checkpoint.from_json(plan["after"])
        is_repeated = plan.get("is_read")
        if not is_repeated:
            consumer.refuse_moved(before, after)
        self._run_job(context, plan["window"])
        if not is_repeated:
            consumer.move(before, after)
            plans.set(_PLAN_KEY, {**plan, "is_read": True}, retention=NEVER_EXPIRE)
        return {key: self.window[key] for key in ("table", "commits", "start", "end")}

    def _run_job(self, context: Context, window: dict[str, Any]) -> None:
        self.window = window
        self.log.info("The job reads %d commits, up to %s.", len(window["commits"]), window["end"])
        if window["scan"]:
            self.log.info("It scans the whole table: %s.", window["scan"])
        self.conf = {**(self.conf or {}), WINDOW_CONF: json.dumps(window)}
        super().execute(context)

    def _plan(self, consumer: Consumer) -> dict[str, Any]:
        """Return the window after the consumer's checkpoint; skip the task if it is empty."""
        table = open_table(self.table, self.storage_conn_id)
        since = consumer.checkpoint()
        if since is None and self.start == "latest":
            since = all_seen(table.snapshot())
        consumer.keep(since)
        read = incremental_read(table, since, most=self.most_commits)
        if held := read.window.held_up_by:
            self.log.info("The window ends before the pending %s.", ", ".join(held))
        if not read.window.commits:
            raise AirflowSkipException(f"{self.table} has no new commit")
        window = {
            "table": self.table,
            "options": dict(read.options(self.release)),
            "predicate": read.predicate,
            "commits": [commit.time for commit in read.window.commits],
            "scan": read.scan,
            "start": read.window.start,
            "end": read.window.end,
        }
        before = since.to_json() if since else None
        return {"window": window, "before": before, "after": read.window.checkpoint.to_json()}
