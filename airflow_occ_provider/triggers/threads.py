"""Threads for blocking calls, outside a triggerer's event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

_P = ParamSpec("_P")
_T = TypeVar("_T")
_THREADS = 8
_KEPT = 16
_registry = threading.Lock()
# A pool lives as long as a call refers to it, and a while longer: a triggerer may see many clusters
# come and go, and it calls some of them many times in a second.
_pools: WeakValueDictionary[str, ThreadPoolExecutor] = WeakValueDictionary()
_recent: OrderedDict[str, ThreadPoolExecutor] = OrderedDict()


async def in_thread(service: str, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a blocking call to a service in one of that service's own threads.

    An unavailable service therefore does not delay calls to the others.
    """
    with _registry:
        pool = _pools.get(service)
        if pool is None:
            pool = _pools[service] = ThreadPoolExecutor(_THREADS, f"hudi-{service}")
        _recent[service] = pool
        _recent.move_to_end(service)
        if len(_recent) > _KEPT:
            _recent.popitem(last=False)
    bound = partial(contextvars.copy_context().run, call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(pool, _call, pool, bound)


def _call(_pool: ThreadPoolExecutor, call: Callable[[], _T]) -> _T:
    """Make a call that refers to its pool also after its caller was cancelled."""
    return call()
