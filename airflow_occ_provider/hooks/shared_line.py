"""One session to the lock service for everything in this process that waits on one connection."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.leases.line import Line

_P = ParamSpec("_P")
_T = TypeVar("_T")
_THREADS = 8
_registry = threading.Lock()
# Threads of their own for each connection: nobody waits for a lock service of others that is away.
_threads: dict[str, ThreadPoolExecutor] = {}


async def in_thread(
    lock_conn_id: str, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Run a call that may wait for the lock service, off the event loop.

    :param lock_conn_id: Airflow connection of the lock service.
    :param call: what is called, with the arguments that follow.
    """
    with _registry:
        if lock_conn_id not in _threads:
            _threads[lock_conn_id] = ThreadPoolExecutor(_THREADS, f"hudi-lease-{lock_conn_id}")
        threads = _threads[lock_conn_id]
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(
        threads, lambda: context.run(call, *args, **kwargs)
    )


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.line: Line | None = None
        self.users = 0


_by_connection: dict[str, _Shared] = {}


@asynccontextmanager
async def shared_line(lock_conn_id: str) -> AsyncIterator[Line]:
    """Share the line of a connection; the last one who leaves ends its session.

    :param lock_conn_id: Airflow connection of the lock service.
    :raises ConfigurationError: if the connection is missing or wrong, or refused.
    :raises LockUnreachableError: if the lock service does not answer in time.
    """
    entering = asyncio.ensure_future(in_thread(lock_conn_id, _enter, lock_conn_id))
    try:
        line = await asyncio.shield(entering)
    except asyncio.CancelledError:
        entering.add_done_callback(lambda entered: _give_back(entered, lock_conn_id))
        raise
    try:
        yield line
    finally:
        await asyncio.shield(in_thread(lock_conn_id, _leave, lock_conn_id))


def _give_back(entered: asyncio.Future[Line], lock_conn_id: str) -> None:
    """Leave for a trigger that was cancelled while it entered."""
    if not entered.cancelled() and entered.exception() is None:
        threading.Thread(target=_leave, args=(lock_conn_id,), daemon=True).start()


def _enter(lock_conn_id: str) -> Line:
    with _registry:
        shared = _by_connection.setdefault(lock_conn_id, _Shared())
        shared.users += 1
    try:
        with shared.lock:
            if shared.line is None:
                shared.line = lock_hook(lock_conn_id).leases()
            return shared.line
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
        if shared.line:
            shared.line.close()
