"""``HudiFreeScopeTrigger``: waits until no request conflicts with a scope."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import QueuedRequest, Scope, conflicting
from airflow_occ_provider.triggers.base import WaitingTrigger
from airflow_occ_provider.triggers.shared_queue import shared_queue
from airflow_occ_provider.triggers.threads import in_thread


@dataclass(kw_only=True, eq=False, repr=False)
class HudiFreeScopeTrigger(WaitingTrigger):
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

    async def event(self) -> dict[str, Any]:
        """Check the queue regularly, in a thread, until nothing conflicts."""
        scope = Scope.of(self.table, self.partitions)
        while True:
            try:
                async with shared_queue(self.lock_conn_id) as queue:
                    # One queue for all checks: it remembers since when a request has not been renewed.
                    while True:
                        if not conflicting(scope, await self._live_requests(queue)):
                            return {"status": "free"}
                        await asyncio.sleep(self.poll_s)
            except LockUnreachableError as error:
                self.log.warning("Retrying: %s", error.message)
                await asyncio.sleep(self.poll_s)

    async def _live_requests(self, queue: Queue) -> Sequence[QueuedRequest]:
        return await in_thread(self.lock_conn_id, queue.live_requests, self.table)
