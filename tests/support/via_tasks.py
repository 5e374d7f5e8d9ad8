"""Tasks whose drivers another operator starts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts.site import ELSEWHERE
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.submitters import folder_driver, followed_driver
from airflow_occ_provider.submitters import folder_driver as folder_driver_module
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers import driver as driver_trigger
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from airflow_occ_provider.via import ARGUMENTS, RUNNER
from tests.support.fixed_options import fix_options
from tests.support.policies import with_policy
from tests.support.task_state import Task
from tests.unit.folder_drivers import FolderDriverOfTest

INTERVAL = {"hoodie.client.heartbeat.interval_in_ms": "60000"}


def end(code=0):
    return {"fact": "end", "exit_code": code, "committed": [], "is_certain": True}


class LivyOperator(BaseOperator):
    """Starts a driver and returns, as the operator of that name does."""

    drivers: list[FolderDriverOfTest] = []  # noqa: RUF012
    killed = 0
    error = None

    def __init__(self, *, file, args, polling_interval=0, **kwargs):
        super().__init__(**kwargs)
        self.file, self.args = file, args

    def execute(self, context):
        (url,) = self.args
        assert Path(self.file.removeprefix("file://")).is_file()
        if LivyOperator.error:
            raise LivyOperator.error
        driver = FolderDriverOfTest(Path(url.removeprefix("file://")), f"n{len(self.drivers)}")
        self.drivers.append(driver)
        driver.start()

    def on_kill(self):
        LivyOperator.killed += 1


class Instance(Task):
    def xcom_push(self, **_):
        pass


class Write(HudiWriteOperator):
    """Decides no options; all else is the operator's."""

    def _protected_run(self, context):
        run = super()._protected_run(context)
        fix_options(run, ELSEWHERE, INTERVAL, ("d", "t", "r"))
        return run


def starter(folder, store, tmp_path):
    """Return what makes one process of a task: the operator and its context."""
    job = tmp_path / "job.py"
    job.write_text("print('mine')")

    def start(number=1, **more):
        arguments = {
            "application": str(job),
            "table": str(folder.parent),
            **with_policy({"admission": "off", **more}),
        }
        context = {"ti": Instance(number, 14), "task_state_store": store}
        kwargs = {"file": RUNNER, "args": [ARGUMENTS]}
        context["task"] = Write(task_id="t", via=LivyOperator, via_kwargs=kwargs, **arguments)
        return context["task"], context

    return start


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Have processes and triggers look at once, and often."""
    monkeypatch.setattr(folder_driver_module, "_GATE_S", 0.01)
    monkeypatch.setattr(folder_driver, "_END_S", 0.05)
    monkeypatch.setattr(folder_driver, "_KILL_S", 0.05)
    monkeypatch.setattr(followed_driver, "_PERIODS", ((1e9, 0.0),))
    monkeypatch.setattr(base, "_NOTICE_S", -1000.0)
    monkeypatch.setattr(driver_trigger, "_POLL_S", 0.05)
    base.earliest_s.cache_clear()
    LivyOperator.drivers, LivyOperator.killed, LivyOperator.error = [], 0, None
    yield
    base.earliest_s.cache_clear()
    for driver in LivyOperator.drivers:
        driver.revoke()
        driver.join()


def deferred(call, *arguments):
    with pytest.raises(TaskDeferred) as caught:
        call(*arguments)
    return caught.value


def event_of(trigger):
    path, arguments = trigger.serialize()
    assert path.endswith(".HudiDriverTrigger")
    again = HudiDriverTrigger(**json.loads(json.dumps(arguments)))

    async def first():
        return (await anext(again.run())).payload

    return asyncio.run(asyncio.wait_for(first(), 60))


def the_driver():
    """The driver that was started last, once it was granted."""
    driver = LivyOperator.drivers[-1]
    driver.join()
    assert driver.ran, driver.left
    return driver
