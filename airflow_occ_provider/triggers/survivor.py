"""``HudiSurvivorTrigger``: waits until the drivers of earlier tries have left a table alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.survivor import Look
from airflow_occ_provider.triggers.earliest import until_earliest

_SLOWEST_POLL_S = 10.0


class HudiSurvivorTrigger(BaseTrigger):
    """Fire when none of some pending writes is beating any more.

    Each is completed then, or rolled back, or its heartbeat has expired. A storage that does not
    answer is asked again until the deadline.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param instants: requested times of the writes.
    :param until_ms: epoch milliseconds before which it does not fire.
    :param ended_ms: epoch milliseconds; a write that has ticked since is not waited for; 0 to wait
        for every one.
    :param deadline_ms: epoch milliseconds at which it gives up, with the status ``timeout``.
    :param interval_ms: Hudi's heartbeat interval.
    :param tolerable_misses: Hudi's tolerable misses.
    """

    def __init__(
        self,
        *,
        table: str,
        storage_conn_id: str | None = None,
        instants: Sequence[str] = (),
        until_ms: int = 0,
        ended_ms: int = 0,
        deadline_ms: int,
        interval_ms: int,
        tolerable_misses: int,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.storage_conn_id = storage_conn_id
        self.instants = list(instants)
        self.until_ms = until_ms
        self.ended_ms = ended_ms
        self.deadline_ms = deadline_ms
        self.interval_ms = interval_ms
        self.tolerable_misses = tolerable_misses

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        names = ("table", "storage_conn_id", "instants", "until_ms", "ended_ms", "deadline_ms")
        kwargs = {name: getattr(self, name) for name in (*names, "interval_ms", "tolerable_misses")}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again, in a thread, and tell once."""
        poll_s, begun_s = min(_SLOWEST_POLL_S, self.interval_ms / 4000), time.monotonic()
        while True:
            if self._now_ms() >= self.until_ms and await self._is_quiet():
                await until_earliest(begun_s)
                yield TriggerEvent({"status": "ended"})
                return
            if self._now_ms() >= self.deadline_ms:
                yield TriggerEvent({"status": "timeout"})
                return
            await asyncio.sleep(poll_s)

    async def _is_quiet(self) -> bool:
        if not self.instants:
            return True
        try:
            return not await asyncio.to_thread(self._live)
        except TableUnreadableError as error:
            self.log.warning("The table cannot be read, asking again: %s", error)
            return False

    def _live(self) -> tuple[str, ...]:
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        return Look.at(self._hook.snapshot(), self._now_ms(), rule).live(self.instants, self.ended_ms)

    @cached_property
    def _hook(self) -> HudiTableHook:
        """It keeps the last look, so that a poll costs one listing and what is new."""
        return HudiTableHook(self.table, self.storage_conn_id)

    @staticmethod
    def _now_ms() -> int:
        return round(time.time() * 1000)
