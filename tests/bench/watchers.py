"""Triggers to compare with, and the probe that measures a triggerer from within."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger, parse_instants

READINGS = "BENCH_READINGS"
WAKE = "BENCH_WAKE"
ONE_IN = 10  # a process cannot do it for all of them
_NAP_S = 0.01
_TELLS_EVERY_S = 1.0
_COUNTS_EVERY_S = 5.0
_listings: Counter[str] = Counter()
_counting = threading.Lock()
_woken = asyncio.Event()


class IdleTrigger(HudiHeartbeatTrigger):
    """Does nothing, to measure Airflow itself; after a signal, one in so many polls for itself.

    It polls each period, as a trigger that shares nothing does.
    """

    def shared_stream_key(self) -> None:
        return None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await (_woken if self.trigger_id % ONE_IN == 0 else asyncio.Event()).wait()
        period_s = self.interval_ms / 4000
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        watch = WriterWatch(open_table(self.table, self.storage_conn_id), rule)
        wanted = parse_instants(self.instants)
        await asyncio.sleep(random.uniform(0, period_s))
        while True:
            sight = await asyncio.to_thread(watch.observe)
            writers = map(sight.writer, sight.pending if wanted is None else wanted)
            if not all(writer.fate.beating for writer in writers):
                yield TriggerEvent({"status": "reached"})
                return
            await asyncio.sleep(period_s)


class IdleDriverTrigger(HudiDriverTrigger):
    """Follows nothing, to measure Airflow itself."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.Event().wait()
        yield TriggerEvent({})

    async def cleanup(self) -> None:
        """It holds no lease."""


class ProbeTrigger(BaseTrigger):
    """Writes each second how late the event loop was, and which folders were listed."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        out = Path(os.environ[READINGS]).open("a", buffering=1)  # noqa: ASYNC230, SIM115
        counted_s = float("-inf")
        while True:
            reading: dict[str, Any] = {"lags": await _lags_ms(), "listings": dict(_listings)}
            reading["at"] = now_s = time.monotonic()
            if now_s - counted_s > _COUNTS_EVERY_S:
                reading["tasks"], counted_s = len(asyncio.all_tasks()), now_s
                if Path(os.environ[WAKE]).exists():  # noqa: ASYNC240
                    _woken.set()
            out.write(json.dumps(reading) + "\n")
        yield TriggerEvent({})


async def _lags_ms() -> list[float]:
    lags_ms, until_s = [], time.monotonic() + _TELLS_EVERY_S
    while (before_s := time.monotonic()) < until_s:
        await asyncio.sleep(_NAP_S)
        lags_ms.append(round((time.monotonic() - before_s - _NAP_S) * 1e3, 2))
    return lags_ms


def count(name: str) -> None:
    """Count a request."""
    with _counting:
        _listings[name] += 1


def _count_listings() -> None:
    """Count the requests to the storage, in the one method through which all of them go."""
    ask = TableFolder.ask

    def counted(self: TableFolder, name: str, call: Any) -> Any:
        count(name)
        return ask(self, name, call)

    TableFolder.ask = counted  # type: ignore[method-assign]


_count_listings()
