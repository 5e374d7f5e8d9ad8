"""``HudiFreeScopeTrigger``: waits until no request conflicts with a scope."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from airflow.triggers.base import TriggerEvent

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.lease import LeaseService
from airflow_occ_provider.leases.rules import Scope, conflicting
from airflow_occ_provider.triggers.base import HudiTrigger, until_earliest
from airflow_occ_provider.triggers.shared_queue import shared_queue
from airflow_occ_provider.triggers.threads import in_thread


@dataclass(kw_only=True, eq=False, repr=False)
class HudiFreeScopeTrigger(HudiTrigger):
    """A trigger that fires when a scope is free.

    Event statuses: ``free``, ``timeout``.

    :param lock_conn_id: Airflow connection of the lock service.
    :param table: canonical base path of the table.
    :param partitions: partition paths; ``None`` for the whole table.
    :param poll_s: seconds between two checks.
    :param deadline_ms: epoch milliseconds at which it times out.
    """

    lock_conn_id: str
    table: str
    partitions: Sequence[str] | None
    poll_s: float
    deadline_ms: int

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check the queue regularly, in a thread, and fire once."""
        scope, begun_s = Scope.of(self.table, self.partitions), time.monotonic()
        status = None
        while status is None:
            try:
                async with shared_queue(self.lock_conn_id) as queue:
                    status = await self._wait(queue, scope)
            except LockUnreachableError as error:
                self.log.warning("Retrying: %s", error.message)
                await asyncio.sleep(self.poll_s)
                status = "timeout" if self._is_late else None
        await until_earliest(begun_s)
        yield TriggerEvent({"status": status})

    async def _wait(self, queue: LeaseService, scope: Scope) -> str:
        # One queue object for all checks: it remembers since when a request has not been renewed.
        while conflicting(scope, await in_thread(self.lock_conn_id, queue.live_requests, self.table)):
            if self._is_late:
                return "timeout"
            await asyncio.sleep(self.poll_s)
        return "free"

    @property
    def _is_late(self) -> bool:
        return time.time() * 1000 >= self.deadline_ms
