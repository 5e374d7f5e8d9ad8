"""The driver's log in the task's log, as the triggerer writes it."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import MaskSecret
from airflow.sdk.log import _secrets_masker, mask_logs

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running
from airflow_occ_provider.attempts.waits import DriverWait
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.task_run import _trigger
from airflow_occ_provider.places.of_task import service_of
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers import driver as module
from airflow_occ_provider.triggers.driver import HudiDriverTrigger

HANDLE = Handle("in_memory", "driver 1", {"number": 1})
LINES = [
    "fs.s3a.secret.key=secret-of-the-conf refused\n",
    "url jdbc:x;password=secret-of-the-site\n",
    "login http://me:secret-of-a-url@host/\n",
    "done\n",
]


class EndedDriver:
    """A driver that has ended, with its log to be read."""

    def __init__(self):
        self.parts = [LINES, None]

    def poll(self, _):
        return Ended(0)

    def read(self, *_):
        return self.parts.pop(0)


class KilledDriver(EndedDriver):
    """A driver that runs until it is ended."""

    is_ended = False

    def poll(self, _):
        return Ended(-15) if self.is_ended else Running()

    def end(self, _):
        self.is_ended = True


class EndingDriver(EndedDriver):
    """A driver that writes a line before each of three looks, and then ends."""

    def __init__(self):
        self.parts = [["1\n"], [], ["2\n"], [], ["3\n"], [], ["the last\n"], None]

    def poll(self, _):
        return Running() if len(self.parts) > 2 else Ended(0)


@pytest.fixture
def triggerer(monkeypatch):
    """What the triggerer's supervisor is told, in order: secrets to mask, and log lines."""
    told: list[tuple[str, object]] = []
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(module, "follower", lambda _, **__: EndedDriver())

    def send(message):
        assert isinstance(message, MaskSecret)
        told.append(("secret", message.value))

    comms = SimpleNamespace(send=send)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    logger = SimpleNamespace(info=lambda line, *_: told.append(("line", line)), warning=print)
    monkeypatch.setattr(HudiDriverTrigger, "log", logger)
    return told


@pytest.fixture
def masker(monkeypatch):
    """The masker of the triggerer's supervisor, which has seen no secret yet."""
    one = _secrets_masker()
    monkeypatch.setattr(one, "patterns", set())
    monkeypatch.setattr(one, "replacer", None)
    return one


def task_log(told, masker):
    """Return the lines that the triggerer's supervisor writes."""
    masker.reset_masker()
    lines = []
    for kind, value in told:
        if kind == "secret":
            masker.add_mask(value)
        else:
            lines.append(mask_logs(None, "info", {"event": value})["event"])
    return lines


def event_of(trigger):
    return asyncio.run(asyncio.wait_for(anext(trigger.run()), 60)).payload


def test_the_triggers_echo_masks_named_secrets_and_its_arguments_hold_none(folder, triggerer, masker):
    task = HudiWriteOperator(
        task_id="t",
        application="a.py",
        table=str(folder.parent),
        conf={"spark.hadoop.fs.s3a.secret.key": "secret-of-the-conf", "spark.app.name": "shown"},
    )
    trigger, _ = _trigger(task, DriverWait(HANDLE, HeartbeatRule(), 0))
    path, arguments = trigger.serialize()
    assert path.endswith("HudiDriverTrigger")
    assert "secret-of" not in str(arguments)
    assert event_of(HudiDriverTrigger(**json.loads(json.dumps(arguments))))["status"] == "ended"
    assert task_log(triggerer, masker) == [
        "fs.s3a.secret.key=*** refused",
        "url jdbc:x;password=***",
        "login http://me:***@host/",
        "done",
    ]


def test_a_driver_is_ended_though_looks_at_others_use_all_threads_of_its_service(folder, monkeypatch):
    """As after the loss of a rack: each look waits for a node that does not answer."""
    driver, answer = KilledDriver(), threading.Event()
    monkeypatch.setattr(module, "follower", lambda _, **__: driver)
    task = HudiWriteOperator(task_id="t", application="a.py", table=str(folder.parent))
    trigger, _ = _trigger(task, DriverWait(HANDLE, HeartbeatRule(), 0))

    async def killed_beside_looks():
        looks = [
            asyncio.create_task(base.in_thread(service_of(HANDLE), answer.wait))
            for _ in range(base._THREADS)
        ]
        try:
            await asyncio.sleep(0)  # the looks are in their threads
            await asyncio.wait_for(trigger.on_kill(), 60)
        finally:
            answer.set()
        await asyncio.gather(*looks)

    asyncio.run(killed_beside_looks())
    assert driver.is_ended


def test_each_line_is_logged_once_and_in_order_before_the_event(folder, triggerer, monkeypatch):
    monkeypatch.setattr(module, "follower", lambda _, **__: EndingDriver())
    monkeypatch.setattr(module, "_POLL_S", 0.02)
    task = HudiWriteOperator(task_id="t", application="a.py", table=str(folder.parent))
    trigger, _ = _trigger(task, DriverWait(HANDLE, HeartbeatRule(), 0))
    assert event_of(trigger)["status"] == "ended"
    assert [line for kind, line in triggerer if kind == "line"] == ["1", "2", "3", "the last"]
