"""What the triggers share: arguments as fields, when they may fire, and threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from airflow.sdk import conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_occ_provider.errors import OccError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_THREADS = 8
_KEPT = 16
_registry = threading.Lock()
# A pool lives as long as a call refers to it, and a while longer: a triggerer may see many clusters
# come and go, and it calls some of them many times in a second.
_pools: WeakValueDictionary[str, ThreadPoolExecutor] = WeakValueDictionary()
_recent: OrderedDict[str, ThreadPoolExecutor] = OrderedDict()
_NOTICE_S = 2.0
_LEAST_S = 5.0


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


@dataclass(kw_only=True, eq=False, repr=False)
class HudiTrigger(BaseTrigger):
    """The base of the triggers: its fields are the constructor's arguments."""

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def is_of_an_asset(self) -> bool:
        """Whether an asset's watcher runs it, and not a task."""
        return self.task_instance is None and self.trigger_id is not None  # dag.test() gives neither

    def log_retry(self, error: OccError) -> None:
        """Log that a table could not be read."""
        self.log.warning("The table cannot be read, retrying: %s", error)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the constructor arguments, sequences as lists."""
        arguments = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in arguments.items()}
        return f"{type(self).__module__}.{type(self).__qualname__}", plain


@dataclass(kw_only=True, eq=False, repr=False)
class WaitingTrigger(HudiTrigger):
    """A trigger that fires once, with an event that it waits for until a deadline.

    A subclass has ``event``. Other event statuses are ``timeout`` and ``error``.

    :param deadline_ms: epoch milliseconds at which a task's trigger times out; 0 for never.
    """

    deadline_ms: int = 0

    async def run(self) -> AsyncGenerator[TriggerEvent]:
        """Fire once for a task, and as ``watch`` does for an asset's watcher."""
        events = self.watch() if self.is_of_an_asset else self._fire_once()
        async with aclosing(events):
            async for event in events:
                yield event

    def watch(self) -> AsyncGenerator[TriggerEvent]:
        """Return the events of an asset's watcher: one, unless a subclass has more."""
        return self._fire_once()

    async def _fire_once(self) -> AsyncGenerator[TriggerEvent]:
        begun_s = time.monotonic()
        event = await event_in_time(self.event(), self.deadline_ms)
        await until_earliest(begun_s)
        yield TriggerEvent(event)

    @abstractmethod
    async def event(self) -> dict[str, Any]:
        """Return the event, once it is there.

        :raises OccError: if it cannot be waited for.
        """


async def event_in_time(event: Awaitable[dict[str, Any]], deadline_ms: int) -> dict[str, Any]:
    """Return an awaited event, or one with the status ``timeout`` or ``error``.

    After a long halt of the triggerer there is still time for one listing.

    :param deadline_ms: epoch milliseconds at which it times out; 0 for never.
    """
    left_s = max(_LEAST_S, deadline_ms / 1000 - time.time()) if deadline_ms else None
    try:
        async with asyncio.timeout(left_s):
            return await event
    except TimeoutError:
        return {"status": "timeout"}
    except OccError as error:
        return {"status": "error", "message": str(error)}


@cache
def earliest_s() -> float:
    """Return for how many seconds after its start a trigger does not fire.

    Airflow's scheduler (3.3.2) fails a task that is queued again before the scheduler has seen that the
    first process ended. The supervisor of that process may notice its end only at its next heartbeat.
    """
    return conf.getfloat("workers", "min_heartbeat_interval", fallback=5.0) + _NOTICE_S


async def until_earliest(begun_s: float) -> bool:
    """Wait until a trigger may fire; return whether that took any time.

    :param begun_s: ``time.monotonic()`` at its start.
    """
    left_s = begun_s + earliest_s() - time.monotonic()
    await asyncio.sleep(left_s)
    return left_s > 0
