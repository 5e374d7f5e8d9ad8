"""``HudiHeartbeatTrigger``: waits until a table's writers reach a fate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.sdk.execution_time.xcom import XCom
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_occ_provider.attempts.record import INSTANTS_KEY
from airflow_occ_provider.errors import ConfigurationError, OccError, TableUnreadableError
from airflow_occ_provider.hudi.writer.fate import ENDED, Awaited, Fate, Match, Writer
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_TOLERABLE_MISSES,
    HeartbeatRule,
)
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.watch import Observation
from airflow_occ_provider.triggers.base import WaitingTrigger, in_thread, until_earliest
from airflow_occ_provider.triggers.shared_watch import SharedWatch, WriterTarget, shared_watch

_WATCHER_RETRY_S = 60.0


@dataclass(kw_only=True, eq=False, repr=False)
class HudiHeartbeatTrigger(WaitingTrigger, BaseEventTrigger):
    """A trigger that fires when the writers of a table have reached a fate.

    Event statuses: ``reached``, ``timeout``, ``error``. A writer is dead if Hudi's lazy cleaner on this
    host would consider it dead. All triggers of one table share one listing per period. An event has
    the writers and their fates, and is equal for an equal state. In an ``AssetWatcher`` the trigger
    keeps running, whatever its deadline is, and fires again when other writers reach the fate; its
    errors do not become asset events, but are logged by the triggerer and retried.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param instants: requested times of the writes to watch. Default: all pending writes.
    :param writer_task_id: id of a task of the same run; its writes are watched instead.
    :param until: the fates to wait for, values of ``Fate``.
    :param match: ``"all"`` to wait for all of the writers, ``"any"`` for one of them.
    :param poll_s: seconds between two listings. Default: a quarter of the interval.
    :param interval_ms: Hudi's heartbeat interval, in milliseconds.
    :param tolerable_misses: Hudi's tolerable misses.
    :param deadline_ms: epoch milliseconds at which a task's trigger times out; 0 for never.
    """

    table: str
    storage_conn_id: str | None = None
    instants: str | Sequence[str] | None = None
    writer_task_id: str | None = None
    until: Sequence[str] = ENDED
    match: str = Match.ALL
    poll_s: float | None = None
    interval_ms: int = DEFAULT_INTERVAL_MS
    tolerable_misses: int = DEFAULT_TOLERABLE_MISSES

    def __post_init__(self) -> None:
        super().__post_init__()
        self.until, self.match = [str(fate) for fate in self.until], str(self.match)

    async def event(self, last: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the writers that have reached the fate.

        :param last: the last event, from which the next one differs.
        """
        watched = self._watched
        async with shared_watch(watched) as watch:
            return await self._reached(watch, watched, last)

    async def watch(self) -> AsyncGenerator[TriggerEvent]:
        """Fire each time that other writers have reached the fate."""
        begun_s, last = time.monotonic(), None
        while True:
            try:
                last = await self.event(last)
            except OccError as error:  # Airflow 3.3.2 restarts an ended watcher at once, with an event
                self.log.error("The table cannot be watched: %s", error)
                await asyncio.sleep(_WATCHER_RETRY_S)
            else:
                await until_earliest(begun_s)
                yield TriggerEvent(last)

    @property
    def _watched(self) -> WriterTarget:
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        poll_s = self.poll_s or self.interval_ms / 4000
        return WriterTarget(canonical_table(self.table), self.storage_conn_id, poll_s, rule)

    async def _reached(
        self, watch: SharedWatch[Observation], watched: WriterTarget, last: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Wait for an event that differs from the last one."""
        awaited = Awaited(tuple(map(Fate, self.until)), Match(self.match))
        if awaited.match is Match.ALL:
            await watch.current()
        observation: Observation | None = None
        while True:
            observation = await watch.changes.read_after(observation, self.log_retry)
            reached = awaited.reached(await self._writers(observation, watched))
            event = {"status": "reached", "writers": list(map(writer_payload, reached or ()))}
            if reached is not None and event != last:
                self._log_clock(observation)
                return event

    async def _writers(self, observation: Observation, watched: WriterTarget) -> Sequence[Writer]:
        """Return the watched writers, with the fates of ended ones read from the table."""
        wanted = await self._own_instants(watched.poll_s) or parse_instants(self.instants)
        if wanted is None:
            return tuple(observation.pending.values())
        if observation.pending.keys() >= set(wanted):
            return tuple(map(observation.writer, wanted))
        writers = await self._retried(watched, lambda: list(map(observation.writer, wanted)))
        if any(writer.fate is Fate.GONE for writer in writers):  # it may have begun after that listing
            writers = await self._retried(watched, lambda: list(map(watched.open()().writer, wanted)))
        return writers

    async def _retried(self, watched: WriterTarget, read: Callable[[], list[Writer]]) -> list[Writer]:
        while True:
            try:
                return await in_thread(watched.service, read)
            except TableUnreadableError as error:
                self.log_retry(error)
                await asyncio.sleep(watched.poll_s)

    async def _own_instants(self, poll_s: float) -> tuple[str, ...] | None:
        """Wait until the writing task has published its instants."""
        if self.writer_task_id is None:
            return None
        ti = self.task_instance
        if ti is None:
            raise ConfigurationError(
                "writer_task_id",
                "a trigger without a task cannot wait for another task",
                remedy="use instants instead",
            )
        writer_task = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": self.writer_task_id}
        while True:
            instants = await in_thread("airflow", lambda: XCom.get_one(key=INSTANTS_KEY, **writer_task))
            if instants:
                return parse_instants(instants)
            await asyncio.sleep(poll_s)

    def _log_clock(self, observation: Observation) -> None:
        if observation.clock is None:
            return
        self.log.info("The storage's clock is ahead of this host's by %s.", observation.clock)
        if observation.clock.minimum_ms > self.interval_ms:
            self.log.warning(
                "The clocks of the storage and of this host differ by more than one heartbeat interval; "
                "a lazy clean on this host is wrong by as much. Remedy: synchronize the clocks."
            )


def parse_instants(instants: object) -> tuple[str, ...] | None:
    """Return the requested times of one or several instants; ``None`` for all writers.

    :raises ConfigurationError: if one of them is not an instant.
    """
    if instants is None:
        return None
    times = (instants,) if isinstance(instants, str) else instants
    if isinstance(times, Sequence) and times and all(str(instant).isdecimal() for instant in times):
        return tuple(map(str, times))
    raise ConfigurationError(
        "instants",
        f"{instants!r} is not the requested time of an instant",
        remedy="use the form that the timeline shows, such as 20261121031500000, or omit it for all "
        "writers of the table",
    )


def writer_payload(writer: Writer) -> dict[str, Any]:
    """Return a writer's event payload, independent of the current time."""
    return {
        "instant": writer.instant,
        "action": writer.action,
        "fate": writer.fate.value,
        "last_tick_ms": writer.last_ms,
    }
