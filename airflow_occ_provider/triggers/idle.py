"""Triggers that wait until writers have ended: in a scope, or of earlier tries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.attempts.rivals import busy_writers
from airflow_occ_provider.errors import NotHudiTableError, OccError, TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.writer.fate import Writer
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_TOLERABLE_MISSES,
    HeartbeatRule,
)
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.watch import Observation
from airflow_occ_provider.triggers.base import WaitingTrigger, in_thread
from airflow_occ_provider.triggers.shared_watch import WatchResult, WriterTarget, shared_watch

_MAX_POLL_S = 10.0


@dataclass(kw_only=True, eq=False, repr=False)
class HudiTableIdleTrigger(WaitingTrigger):
    """A trigger that fires when no live writer may touch some partitions of a table.

    Event statuses: ``idle``, ``timeout``, ``error``. All triggers of one table share one listing per
    period. While a writer is live, each with partitions reads what the writers touch.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param partitions: partition paths; ``None`` for the whole table.
    :param poll_s: seconds between two listings.
    :param interval_ms: Hudi's heartbeat interval, in milliseconds.
    :param tolerable_misses: Hudi's tolerable misses.
    :param deadline_ms: epoch milliseconds at which it times out.
    """

    table: str
    storage_conn_id: str | None = None
    partitions: Sequence[str] | None = None
    poll_s: float
    interval_ms: int = DEFAULT_INTERVAL_MS
    tolerable_misses: int = DEFAULT_TOLERABLE_MISSES

    async def event(self) -> dict[str, Any]:
        """Return once no writer is live."""
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        watched = WriterTarget(canonical_table(self.table), self.storage_conn_id, self.poll_s, rule)
        listing: WatchResult[Observation] | None = None
        async with shared_watch(watched) as watch:
            await watch.current()  # an older listing may not show a writer that the task has seen
            while True:
                listing = await watch.listings.after(listing)
                if isinstance(listing, NotHudiTableError):
                    return {"status": "idle"}
                if isinstance(listing, TableUnreadableError):
                    self.log_retry(listing)
                elif isinstance(listing, OccError):
                    raise listing
                elif not await self._busy(watched, listing):
                    return {"status": "idle"}

    async def _busy(self, watched: WriterTarget, observation: Observation) -> bool:
        has_live = any(writer.fate.beating for writer in observation.pending.values())
        if not (has_live and self.partitions):
            return has_live
        try:
            table = await in_thread(watched.service, open_table, self.table, self.storage_conn_id)
            paths, rule, before = self.partitions, watched.rule, observation.snapshot
            return bool(await in_thread(watched.service, busy_writers, table, paths, rule, before))
        except TableUnreadableError as error:
            self.log_retry(error)
            return True


@dataclass(kw_only=True, eq=False, repr=False)
class HudiSurvivorTrigger(WaitingTrigger):
    """A trigger that fires when the heartbeats of some pending writes have ended.

    Each write is then completed or rolled back, or its heartbeat has expired. A storage that does not
    answer is retried until the deadline. Event statuses: ``ended``, ``timeout``, ``error``.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param instants: requested times of the writes.
    :param until_ms: epoch milliseconds before which it does not fire.
    :param ended_ms: epoch milliseconds; a write with a later heartbeat is ignored; 0 to wait for all.
    :param deadline_ms: epoch milliseconds at which it fires with the status ``timeout``.
    :param interval_ms: Hudi's heartbeat interval.
    :param tolerable_misses: Hudi's tolerable misses.
    """

    table: str
    storage_conn_id: str | None = None
    instants: Sequence[str] = ()
    until_ms: int = 0
    ended_ms: int = 0
    interval_ms: int
    tolerable_misses: int

    async def event(self) -> dict[str, Any]:
        """Return once none of the heartbeats is renewed any more."""
        await asyncio.sleep(self.until_ms / 1000 - time.time())
        if self.instants:
            await self._heartbeats_end()
        return {"status": "ended"}

    async def _heartbeats_end(self) -> None:
        """Return when none of the heartbeats is renewed any more."""
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        poll_s = min(_MAX_POLL_S, self.interval_ms / 4000)
        writers = WriterTarget(canonical_table(self.table), self.storage_conn_id, poll_s, rule)
        async with shared_watch(writers) as watch:
            await watch.current()
            observation: Observation | None = None
            while True:
                observation = await watch.listings.read_after(observation, self.log_retry)
                if not any(self._beats(observation.pending.get(instant)) for instant in self.instants):
                    return

    def _beats(self, writer: Writer | None) -> bool:
        if writer is None or not writer.fate.beating:
            return False
        return not (self.ended_ms and (writer.last_ms or 0) > self.ended_ms)
