"""Triggers that wait for commits, and tables that get them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace

from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX
from airflow_occ_provider.triggers.commit import HudiCommitTrigger
from tests.support.avro_metadata import RECORD, avro

TASK = SimpleNamespace(dag_id="d", run_id="r", task_id="s")
T = [f"202611210925{number:02}000" for number in range(60)]
C = [f"202611210926{number:02}000" for number in range(60)]
PATIENCE_S = 120


class StateStore(dict):
    """An asset's state store, which may be out of order."""

    fails = False

    async def aget(self, key, default=None):
        return self.get(key, default)

    async def aset(self, key, value):
        if self.fails:
            raise RuntimeError("the asset is not active")
        self[key] = value


def complete(folder, number, *, operation="UPSERT", signed=None, action="commit", completed=None):
    extra = {f"{SIGNATURE_PREFIX}{key}": value for key, value in (signed or {}).items()}
    record = {**RECORD, "operationType": operation, "extraMetadata": extra}
    (folder / "timeline" / f"{T[number]}.{action}.requested").touch()
    name = f"{T[number]}_{completed or C[number]}.{action}"
    (folder / "timeline" / name).write_bytes(avro(record))


def of_task(folder, **arguments):
    trigger = HudiCommitTrigger(table=str(folder.parent), poll_s=0.02, **arguments)
    trigger._task_instance = TASK
    return trigger


def of_asset(folder, store, **arguments):
    trigger = of_task(folder, **arguments)
    trigger._task_instance, trigger.trigger_id = None, 1
    trigger.asset_state_store = store
    return trigger


def events(trigger, count, between=lambda: None):
    """Return so many events; call a function whenever one was taken, or waited for."""

    async def run():
        received = []
        async with asyncio.timeout(PATIENCE_S), aclosing(trigger.run()) as running:
            while len(received) < count:
                waiting = asyncio.ensure_future(anext(running))
                while not waiting.done():
                    between()
                    await asyncio.wait([waiting], timeout=0.05)
                received.append(waiting.result().payload)
        return received

    return asyncio.run(run())


def instants(event):
    return [commit["instant"] for commit in event["commits"]]


def instants_read(store):
    (checkpoint,) = store.values()
    return [commit.requested for commit in Checkpoint.from_json(checkpoint).read]
