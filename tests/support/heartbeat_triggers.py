"""Triggers that wait for the end of a heartbeat."""

from __future__ import annotations

import time
from types import SimpleNamespace

from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger

INTERVAL_MS, MISSES, POLL_S = 200, 3, 0.05
TASK = SimpleNamespace(dag_id="d", run_id="r", task_id="s")


def now_ms():
    return round(time.time() * 1000)


def of_task(table, **arguments):
    trigger = HudiHeartbeatTrigger(
        table=str(table.path),
        **{"interval_ms": INTERVAL_MS, "tolerable_misses": MISSES, "poll_s": POLL_S, **arguments},
    )
    trigger._task_instance = TASK
    return trigger


async def events(trigger):
    return [event.payload async for event in trigger.run()]
