"""A writer as ``HudiWriteOperator``: its own ``execute``, its triggers and its retry policy.

In the place of Airflow are a process, a store in memory, and slots that a deferred task gives back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts import write
from airflow_occ_provider.attempts.guards.early_stop import EarlierWriter
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.task import metrics
from tests.bench.conflict.arms import Arm
from tests.bench.conflict.events import Event, Job
from tests.bench.conflict.place import CONF, JOB, MEMORY, TIMES_VARIABLE, Place
from tests.support.session_site import SITE

LOCK, SPARK = "bench_lock", "bench_spark"
DAG_ID = "conflict_g"  # as in Airflow: a task learns from its own DAG alone


def connections(hosts: str) -> dict[str, str]:
    """Return the variables by which Airflow knows the lock, Spark and its own site."""
    lock = {"conn_type": "hudi_zookeeper_lock", "host": hosts, "extra": {"base_path": "/hudi/locks"}}
    spark = {"conn_type": "spark", "host": "local[2]"}
    return {
        f"AIRFLOW_CONN_{LOCK.upper()}": json.dumps(lock),
        f"AIRFLOW_CONN_{SPARK.upper()}": json.dumps(spark),
        "AIRFLOW__HUDI_OCC__SITE_ID": SITE,
    }


class Store(dict[str, Any]):
    """A task run's state store: JSON values, in memory."""

    def set(self, key: str, value: Any, **_: object) -> None:
        self[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.pop(key, None)


@dataclass(frozen=True, slots=True)
class Instance:
    """One try of a task, as far as the operator reads it."""

    run_id: str
    task_id: str
    try_number: int
    max_tries: int
    dag_id: str = DAG_ID
    map_index: int = -1

    def xcom_push(self, **_: object) -> None:
        """Publish nothing: no other task reads it."""


def signature_of(job: Job, run_id: str) -> Signature:
    """Return the signature of a writer's commit."""
    return Signature(run_id, DAG_ID, run_id, job.writer, site=SITE)


def operator_of(
    job: Job, table: str, arguments: Sequence[str], arm: Arm, **more: Any
) -> HudiWriteOperator:
    """Return the task of a writer.

    :param more: further arguments of the operator.
    """
    return HudiWriteOperator(
        task_id=job.writer,
        application=str(JOB),
        application_args=arguments,
        conn_id=SPARK,
        driver_memory=MEMORY,
        conf=CONF,
        table=table,
        lock_conn_id=LOCK,
        scope=list(job.partitions) if arm.ours == "scopes" else None,
        policy=arm.policy,
        **more,
    )


@dataclass(slots=True)
class Task:
    """One writer's task, from try to try."""

    place: Place
    job: Job
    arm: Arm
    _store: Store = field(default_factory=Store, init=False)
    _stood_by_s: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        metrics.standby = lambda _, seconds: self._stood_by_s.append(seconds)

    def run(self) -> None:
        """Run it until it succeeds, or its retry policy gives it up."""
        number = 1
        while True:
            task = self._operator()
            context = self._context(task, number)
            error = self._try(task, context, number)
            if error is None:
                return
            decision = task.retry_policy.evaluate(error, number, task.retries, context)
            if decision.action.value != "retry":
                return
            if decision.retry_delay:
                time.sleep(decision.retry_delay.total_seconds())
            number += 1

    def _try(self, task: Any, context: Any, number: int) -> BaseException | None:
        times = self.place.times(self.job, number)
        os.environ[TIMES_VARIABLE] = str(times)
        error: BaseException | None = None
        instant = None
        try:
            instant = self._steps(task, context)["instant"]
        except Exception as raised:  # as Airflow does: the policy decides
            error = raised
            logging.getLogger(__name__).exception("try %s of %s failed", number, self.job.writer)
        self._keep(number, error, committed=instant is not None)
        return error

    def _steps(self, task: Any, context: Any) -> dict[str, Any]:
        """Execute; wait for each trigger without a slot, and go on."""
        step: Callable[[], dict[str, Any]] = lambda: task.execute(context)  # noqa: E731
        while True:
            try:
                with self.place.slots:
                    return step()
            except TaskDeferred as wait:
                event = asyncio.run(_first_event(wait.trigger))
                method, given = getattr(task, wait.method_name), wait.kwargs or {}
                step = lambda method=method, event=event, given=given: method(  # noqa: E731
                    context, event, **given
                )

    def _keep(self, number: int, error: BaseException | None, *, committed: bool) -> None:
        """Record the drivers of a try; the last one is the writer's own, the others clean."""
        outcome = getattr(error, "outcome", None) or type(error).__name__
        spans = list(self.place.spans(self.place.times(self.job, number)))
        for place, (start_s, end_s) in enumerate(spans, 1):
            is_own = place == len(spans)
            word = ("committed" if committed else str(outcome)) if is_own else "clean"
            event = Event(self.job.writer, number, start_s, end_s, is_own and committed, outcome=word)
            self.place.keep(replace(event, stood_by_s=sum(self._stood_by_s) if is_own else 0.0))
        self._stood_by_s.clear()

    def _operator(self) -> HudiWriteOperator:
        return operator_of(self.job, self.place.table, self.place.arguments(self.job), self.arm)

    def _context(self, task: HudiWriteOperator, number: int) -> Any:
        instance = Instance(self.place.name, self.job.writer, number, task.retries or 0)
        return {"ti": instance, "task": task, "task_state_store": self._store}


def run_ours(place: Place, job: Job, arm: Arm) -> None:
    """Run a writer in a process of its own until it commits, or is given up."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.update({**place.environment, **connections(place.hosts)})
    if arm.without == "giving way":
        EarlierWriter.stop = lambda *_: None  # type: ignore[method-assign]
    elif arm.without == "hints":
        write.with_hint = lambda declared, _: declared
    Task(place, job, arm).run()


async def _first_event(trigger: Any) -> Any:
    event = await anext(trigger.run())
    await trigger.cleanup()
    return event.payload
