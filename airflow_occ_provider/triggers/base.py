"""What the triggers share: their arguments as fields, and when they may fire."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from airflow.sdk import conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_occ_provider.errors import OccError

_NOTICE_S = 2.0
_LEAST_S = 5.0


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
