"""``HudiDriverTrigger``: follows a driver elsewhere without a worker slot."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from weakref import WeakValueDictionary

from airflow.sdk.log import redact  # type: ignore[attr-defined]
from airflow.triggers.base import TriggerEvent

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.guards.table_guards import TableViews
from airflow_occ_provider.attempts.outcome import Outcome, Stop, timeout_line
from airflow_occ_provider.attempts.remote_watch import RemoteWatch
from airflow_occ_provider.attempts.submitter import (
    Ended,
    Handle,
    Running,
    Submitter,
    Unseen,
)
from airflow_occ_provider.errors import LeaseLostError, OccError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.secrets import mask_named
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.observer import TRUSTED
from airflow_occ_provider.places.of_task import follower, service_of
from airflow_occ_provider.triggers.base import in_thread, until_earliest
from airflow_occ_provider.triggers.lease import LeaseTrigger, shared_queue

_POLL_S = 10.0
_VIEWS = 8  # in a heartbeat's interval
_RETRY_S = 1.0
_UNSEEN_S = 600.0
_KILL_S = 20.0  # Airflow waits 30 s
_registry = threading.Lock()
# The guards of a process share them. They live as long as a guard refers to them.
_views: WeakValueDictionary[tuple[str, str | None, float], TableViews] = WeakValueDictionary()


@dataclass(kw_only=True, eq=False, repr=False)
class HudiDriverTrigger(LeaseTrigger):
    """A trigger that fires when a driver has ended, and renews its lease until then.

    It logs what is known of the driver, with named secrets masked, and ends it at the deadline, if its
    heartbeat can never tick again, if the lease is lost and nothing else keeps other writers away, and
    with ``early_stop="act"`` once it is certain that Hudi will refuse its write. Event statuses:
    ``ended``, with ``stop`` if the trigger ended the driver, with ``found`` if it was certain that Hudi
    would refuse the write, with the partitions that the driver was about to write, and with whether the
    lease was held at the driver's end (``is_leased``), and was released then (``is_released``), and
    ``unseen`` if the driver was out of view for ten minutes, or its service has not answered for as
    long as its submitter tolerates: the task's next process looks for it again. A task that is killed
    ends its driver.

    :param driver: the driver's handle, as JSON values.
    :param is_fenced: whether the driver runs on without the lease.
    :param table: base path of the table that it writes.
    :param storage_conn_id: Airflow connection of the table's storage.
    :param interval_ms: Hudi's heartbeat interval.
    :param tolerable_misses: Hudi's tolerable misses.
    :param early_stop: ``off``, ``observe`` or ``act``, as in ``HudiWriteOperator``.
    :param strategy: the writers' conflict resolution strategy, if it is known.
    """

    driver: Mapping[str, Any]
    is_fenced: bool = True
    table: str
    storage_conn_id: str | None = None
    interval_ms: int
    tolerable_misses: int
    early_stop: str = EarlyStop.OFF.value
    strategy: str | None = None
    _wake: Callable[[], object] = field(init=False, default=lambda: None)

    @property
    def extended_s(self) -> float:
        """The monotonic time at which the last renewal of the lease began that succeeded."""
        return self._extended_s

    def extend_soon(self) -> None:
        """Renew the lease without waiting for the next regular time; returns at once."""
        with suppress(RuntimeError):  # the loop has been closed
            self._wake()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the driver until it has ended, and renew the lease meanwhile."""
        self._begun_s = self._renewed_s = time.monotonic()
        keeping = asyncio.create_task(self._keep())
        try:
            event = await self._until_ended(keeping)
            await until_earliest(self._begun_s)
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
        may_release = self._may_release(event)
        if await self._hand_over(release=may_release) and may_release:
            event["is_released"] = True
        self._has_fired = True
        yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """End the driver, and release the lease: the user cleared or ended the task."""
        deadline_s = time.monotonic() + _KILL_S
        while True:
            state = await self._asked(self._end)
            if isinstance(state, Ended) or time.monotonic() >= deadline_s:
                break
            await asyncio.sleep(_RETRY_S)
        self.log.info("%s %s.", self._handle, "has ended" if isinstance(state, Ended) else "still runs")
        if isinstance(state, Ended):
            await self._hand_over(release=True)

    async def _until_ended(self, keeping: asyncio.Task[LeaseLostError]) -> dict[str, Any]:
        stop, seen_s = None, time.monotonic()
        while True:
            state = await self._asked(self._look)
            if isinstance(state, Ended):
                certainty = self._watch.doomed
                return {
                    "status": "ended",
                    "stop": _reason(stop) if stop else None,
                    "found": {**_reason(certainty.stop), "found_ms": certainty.found_ms}
                    if certainty
                    else None,
                    "planned": {time: list(plan) for time, plan in self._watch.planned.items()},
                    "is_leased": await self._is_leased(keeping),
                }
            if not isinstance(state, Unseen):
                seen_s = time.monotonic()
            elif not state.is_away:  # else the submitter logs that, and bounds it
                if time.monotonic() - seen_s >= _UNSEEN_S:
                    return {"status": "unseen", "reason": _masked(state.reason)}
                self.log.warning("Looking again: %s", state.reason)
            stop = stop or self._stop(keeping)
            if stop:
                self.log.warning("Ending %s: %s", self._handle, stop.line)
                await self._asked(self._end)
            waits_for = () if keeping.done() else (keeping,)
            pause = asyncio.create_task(asyncio.sleep(_until_look(self.table, time.monotonic())))
            await asyncio.wait([*waits_for, pause], return_when=asyncio.FIRST_COMPLETED)

    def _echo(self, line: str) -> None:
        self.log.info(mask_named(line.rstrip()))

    def _may_release(self, event: Mapping[str, Any]) -> bool:
        """Whether the next writer may begin now, and not once this task has a worker slot again.

        A driver that did not end well keeps its lease until its heartbeats are removed.
        """
        return bool(event.get("is_leased")) and self.is_fenced and self._watch.has_finished

    async def _is_leased(self, keeping: asyncio.Task[LeaseLostError]) -> bool:
        """Whether the lease is held now, and so was until the driver's end."""
        if not self.ticket or keeping.done():
            return False
        try:
            async with shared_queue(self.lock_conn_id) as queue:
                await self._renew(queue, Ticket.from_json(self.ticket), self._term_ms)
        except LeaseLostError:
            return False
        except OccError as error:
            self.log.warning("The lease was not renewed: %s", error.message)
        return time.monotonic() - self._renewed_s < self._term_ms / 1000 * TRUSTED

    def _stop(self, keeping: asyncio.Task[LeaseLostError]) -> Stop | None:
        """Return the reason to end the driver, if any."""
        if self._is_late:
            return Stop(Outcome.TIMED_OUT, timeout_line(None))
        if keeping.done() and not self.is_fenced:
            return Stop(Outcome.KILLED, keeping.result().message)
        watch = vars(self).get("_watch")  # a thread makes it
        return watch.stop if watch else None

    async def _asked(self, call: Callable[[], Running | Ended | Unseen]) -> Running | Ended | Unseen:
        try:
            # Looks at drivers of lost nodes may use all threads of their service: an end has its own.
            service = service_of(self._handle)
            return await in_thread(f"{service} (ends)" if call == self._end else service, call)
        except Exception as error:  # noqa: BLE001 - the driver is running: only its state is unknown
            return Unseen(f"{type(error).__name__}: {error}")

    async def _keep(self) -> LeaseLostError:
        """Renew the lease until it is lost; return that error."""
        wanted = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, wanted.set)
        while self.ticket:
            try:
                async with shared_queue(self.lock_conn_id) as queue:
                    while True:
                        wanted.clear()
                        await self._renew(queue, Ticket.from_json(self.ticket), self._term_ms)
                        await in_thread(self.lock_conn_id, queue.sweep, Ticket.from_json(self.ticket))
                        with suppress(TimeoutError):
                            await asyncio.wait_for(wanted.wait(), self._period_s)
            except LeaseLostError as error:
                self.log.warning("%s", error.message)
                return error
            except OccError as error:
                self.log.warning("Retrying: %s", error.message)
                if time.monotonic() - self._renewed_s >= self._term_ms / 1000 * TRUSTED:
                    return LeaseLostError(
                        f"the lease could not be renewed in time: {error.message}",
                        remedy="check whether the triggerer always reaches the lock service",
                    )
                await asyncio.sleep(_RETRY_S)
        return await asyncio.Future()  # there is no lease

    @property
    def _term_ms(self) -> int:
        """A driver that nothing else keeps others away from may be without a triggerer for a while."""
        return super()._term_ms if self.is_fenced else max(self.ttl_ms, self.claim_ttl_ms)

    async def _hand_over(self, *, release: bool) -> bool:
        return bool(self.ticket) and await super()._hand_over(release=release)

    def _look(self) -> Running | Ended | Unseen:
        return self._watch.look()

    def _end(self) -> Running | Ended | Unseen:
        self._submitter.end(self._handle)
        return self._submitter.poll(self._handle)

    @cached_property
    def _watch(self) -> RemoteWatch:
        """The watch; the first look, in a thread, makes it."""
        return RemoteWatch(
            self._submitter,
            self._handle,
            shared_views(self.table, self.storage_conn_id, self.interval_ms / 1000 / _VIEWS),
            HeartbeatRule(self.interval_ms, self.tolerable_misses),
            self.log,
            self._echo,
            EarlyStop(self.early_stop),
            Strategy(self.strategy) if self.strategy else None,
        )

    @cached_property
    def _handle(self) -> Handle:
        return Handle.from_json(self.driver)

    @cached_property
    def _submitter(self) -> Submitter:
        submitter = follower(self._handle)
        if self.ticket:
            submitter.feed(self)
        return submitter


def shared_views(table: str, storage_conn_id: str | None, period_s: float) -> TableViews:
    """Return the views of a table, of which each is shared for some seconds.

    :param storage_conn_id: Airflow connection of its storage.
    :raises ConfigurationError: if no installed provider has a file system for the storage.
    """
    key = (table, storage_conn_id, period_s)
    with _registry:
        views = _views.get(key)
    if views is not None:
        return views
    opened = TableViews(open_table(table, storage_conn_id), period_s)  # may ask for the connection
    with _registry:
        return _views.setdefault(key, opened)


def _until_look(table: str, now_s: float) -> float:
    """Return the seconds until the triggers of this process look at the drivers of a table.

    All do so at the same moments, since they share a listing. The tables have different moments.
    """
    return _POLL_S - (now_s + zlib.crc32(table.encode()) / 1000) % _POLL_S


def _reason(stop: Stop) -> dict[str, str | None]:
    """Return a reason to end the driver as JSON values."""
    return {**stop._asdict(), "outcome": str(stop.outcome), "line": _masked(stop.line)}


def _masked(text: str) -> str:
    """Mask what looks like a secret, and the secrets of connections."""
    return str(redact(mask_named(text)))
