"""Task runs of writes whose drivers another operator starts, without Airflow's own processes."""

from __future__ import annotations

import asyncio
import copy
import functools
import threading

from airflow.sdk import DAG
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.errors import OccError, WriteConflictError
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.storage.table import HudiTable
from tests.support.observed import until
from tests.support.task_state import Store, Task
from tests.support.writers import JOB, NO_METADATA_TABLE


class Instance(Task):
    """A task instance whose XComs nothing reads."""

    def xcom_push(self, **_):
        pass


class Run:
    """A task run, each of its tries in a thread.

    :param task: as it was parsed; each try has a copy, as in a process of its own.
    """

    def __init__(self, task):
        self._parsed, self.store = task, Store()
        self.result = self.error = None
        self.number = 0

    def start(self):
        self.number += 1
        self.task = copy.deepcopy(self._parsed)
        self.result = self.error = None
        instance = Instance(self.number, 14)
        instance.task_id = self.task.task_id
        context = {
            "ti": instance,
            "task": self.task,
            "dag": self.task.get_dag(),
            "run_id": instance.run_id,
            "task_state_store": self.store,
            "outlet_events": {},
        }
        self.thread = threading.Thread(target=self._execute, args=(context,), daemon=True)
        self.thread.start()
        return self

    def _execute(self, context):
        try:
            self.task.render_template_fields(context)
            self.result = self._steps(context)
        except Exception as error:  # noqa: BLE001 - handed to the waiting test
            self.error = error

    def _steps(self, context):
        """Execute the task; wait for the event of each of its triggers, and resume it."""
        step = functools.partial(self.task.execute, context)
        while True:
            try:
                return step()
            except TaskDeferred as deferral:
                event = asyncio.run(first_event(deferral.trigger))
                resume = getattr(self.task, deferral.method_name)
                step = functools.partial(resume, context, event, **(deferral.kwargs or {}))

    def wait(self):
        until(lambda: not self.thread.is_alive(), f"the end of {self.task.task_id}")
        return self

    def committed(self):
        """Return the instant of the try's commit."""
        if self.wait().error:
            raise self.error
        return self.result["instant"]

    def reached(self, file):
        """Wait until the job has made a file."""
        until(lambda: file.exists() or not self.thread.is_alive(), f"{file} of {self.task.task_id}")
        if not file.exists():
            raise AssertionError(f"{self.task.task_id} ended before: {self.error or self.result}")


async def first_event(trigger):
    async for event in trigger.run():
        return event.payload
    raise AssertionError(f"{trigger} ended without an event")


def write_run(name, table, *arguments, via, via_kwargs, **more):
    """Return the run of a task that writes a table by ``gated_write.py``.

    :param arguments: more of the job.
    :param more: arguments of the operator.
    """
    with DAG("d", schedule=None):
        task = HudiWriteOperator(
            task_id=name,
            application=str(JOB),
            application_args=[str(table), "--writer", name, *arguments],
            table=str(table),
            lock_conn_id="lock",
            hudi_options=NO_METADATA_TABLE,
            deferrable=False,
            via=via,
            via_kwargs=via_kwargs,
            **more,
        )
    return Run(task)


def raced(run, folder):
    """Return the instant of a first write, then the winner and the loser of two that conflict.

    :param run: makes the run of a task by its name and the arguments of its job.
    :param folder: in which both jobs wait for each other.
    """
    gate = ("--gate", str(folder), "--partition", "p")
    first = run("first", "--partition", "p").start().committed()
    pair = [run(name, *gate).start() for name in ("b", "c")]
    for writer in pair:
        writer.reached(folder / f"{writer.task.task_id}.begun")
    for writer in pair:
        (folder / f"{writer.task.task_id}.go").touch()
    (loser,) = [writer for writer in pair if writer.wait().error]
    (winner,) = [writer for writer in pair if writer is not loser]
    assert isinstance(loser.error, WriteConflictError)
    return first, winner, loser


def write_and_end(run, table, folder, remains):
    """Write a table once; end the task of a second write, of which nothing remains.

    :param remains: returns what there still is of a driver.
    """
    committed = run("first").start().committed()
    assert instants(table) == [committed]
    killed = run("killed", "--gate", str(folder)).start()
    killed.reached(folder / "killed.begun")
    assert remains()
    killed.task.on_kill()
    assert isinstance(killed.wait().error, OccError)
    until(lambda: not remains(), "the end of all that it has started")
    assert instants(table) == [committed]


def instants(table):
    """Return the completed writes of a table on this host."""
    return [instant.time for instant in HudiTable(str(table)).snapshot().timeline.completed_writes()]
