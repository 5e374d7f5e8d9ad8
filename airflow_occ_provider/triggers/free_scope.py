"""``HudiFreeScopeTrigger``: waits until no request conflicts with a scope."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.hooks.shared_queue import shared_queue
from airflow_occ_provider.hooks.threads import in_thread
from airflow_occ_provider.leases.lease import LeaseService
from airflow_occ_provider.leases.rules import Scope, conflicting
from airflow_occ_provider.triggers.earliest import until_earliest


class HudiFreeScopeTrigger(BaseTrigger):
    """A trigger that fires when a scope is free.

    Event statuses: ``free``, ``timeout``.

    :param lock_conn_id: Airflow connection of the lock service.
    :param table: canonical base path of the table.
    :param partitions: partition paths; ``None`` for the whole table.
    :param poll_s: seconds between two checks.
    :param deadline_ms: epoch milliseconds at which it times out.
    """

    def __init__(
        self,
        *,
        lock_conn_id: str,
        table: str,
        partitions: Sequence[str] | None,
        poll_s: float,
        deadline_ms: int,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lock_conn_id = lock_conn_id
        self.table = table
        self.partitions = None if partitions is None else list(partitions)
        self.poll_s = poll_s
        self.deadline_ms = deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the constructor arguments."""
        names = ("lock_conn_id", "table", "partitions", "poll_s", "deadline_ms")
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {name: getattr(self, name) for name in names}

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
