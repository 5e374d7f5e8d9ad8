"""Threads for blocking calls, outside a triggerer's event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_THREADS = 8
_registry = threading.Lock()
_pools: dict[str, ThreadPoolExecutor] = {}


async def in_thread(service: str, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a blocking call to a service in one of that service's own threads.

    An unavailable service therefore does not delay calls to the others.
    """
    with _registry:
        if service not in _pools:
            _pools[service] = ThreadPoolExecutor(_THREADS, f"hudi-{service}")
        pool = _pools[service]
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(
        pool, lambda: context.run(call, *args, **kwargs)
    )
