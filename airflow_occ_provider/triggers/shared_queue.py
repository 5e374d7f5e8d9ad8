"""One shared lock service session per connection and process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.triggers.threads import in_thread

_registry = threading.Lock()


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queue: Queue | None = None
        self.users = 0


_by_connection: dict[str, _Shared] = {}


@asynccontextmanager
async def shared_queue(lock_conn_id: str) -> AsyncIterator[Queue]:
    """Share the queue of a connection; the last user's exit closes its session.

    :raises ConfigurationError: if the connection is missing, wrong or rejected.
    :raises LockUnreachableError: if the lock service does not answer in time.
    """
    entering = asyncio.ensure_future(in_thread(lock_conn_id, _enter, lock_conn_id))
    try:
        queue = await asyncio.shield(entering)
    except asyncio.CancelledError:
        entering.add_done_callback(lambda entered: _give_back(entered, lock_conn_id))
        raise
    try:
        yield queue
    finally:
        await asyncio.shield(in_thread(lock_conn_id, _leave, lock_conn_id))


def _give_back(entered: asyncio.Future[Queue], lock_conn_id: str) -> None:
    """Leave on behalf of a trigger that was cancelled while it entered."""
    if not entered.cancelled() and entered.exception() is None:
        threading.Thread(target=_leave, args=(lock_conn_id,), daemon=True).start()


def _enter(lock_conn_id: str) -> Queue:
    with _registry:
        shared = _by_connection.setdefault(lock_conn_id, _Shared())
        shared.users += 1
    try:
        with shared.lock:
            if shared.queue is None:
                shared.queue = lock_hook(lock_conn_id).leases()
            return shared.queue
    except BaseException:
        _leave(lock_conn_id)
        raise


def _leave(lock_conn_id: str) -> None:
    with _registry:
        shared = _by_connection[lock_conn_id]
        shared.users -= 1
        if shared.users:
            return
        del _by_connection[lock_conn_id]
    with shared.lock:
        if shared.queue:
            shared.queue.close()
