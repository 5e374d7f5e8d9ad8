"""``HudiHeartbeatTrigger``: waits for what becomes of a table's writers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from airflow.sdk.execution_time.xcom import XCom
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_occ_provider.errors import ConfigurationError, OccError, TableUnreadableError
from airflow_occ_provider.hooks.shared_watch import SharedWatch, WatchResult, WatchTarget, shared_watch
from airflow_occ_provider.hooks.threads import in_thread
from airflow_occ_provider.hudi.writer.fate import ENDED, Awaited, Fate, Match, Writer
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_TOLERABLE_MISSES,
    HeartbeatRule,
)
from airflow_occ_provider.jobs.record import INSTANTS_KEY
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.watch import Observation
from airflow_occ_provider.triggers.earliest import until_earliest

_ONE_LOOK_S = 5.0
_WATCHERS_PAUSE_S = 60.0


class HudiHeartbeatTrigger(BaseEventTrigger):
    """Fire when the writers of a table have come to some fate: ``reached``; or ``timeout``, ``error``.

    Dead is who Hudi's lazy cleaner would call dead on this host. All triggers of one table share one
    look at it in a period. An event tells the writers with their fates, and nothing that would
    differ if the same state were told again. In an ``AssetWatcher`` the trigger goes on, and fires
    again where other writers have come to the fate; what goes wrong there makes no asset's event, but
    stands in the triggerer's log, and is tried again.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param instants: requested times of the writes to watch; by default all that are pending.
    :param writer_task_id: id of a task of the same run whose own writes to watch instead.
    :param until: the fates to wait for, values of ``Fate``.
    :param match: ``"all"`` to wait for all of the writers, ``"any"`` for one of them.
    :param poll_s: seconds between two looks; by default a quarter of the interval.
    :param interval_ms: Hudi's heartbeat interval, in milliseconds.
    :param tolerable_misses: Hudi's tolerable misses.
    :param deadline_ms: epoch milliseconds at which it gives up; 0 for never.
    """

    def __init__(
        self,
        *,
        table: str,
        storage_conn_id: str | None = None,
        instants: str | Sequence[str] | None = None,
        writer_task_id: str | None = None,
        until: Sequence[str] = ENDED,
        match: str = Match.ALL,
        poll_s: float | None = None,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        tolerable_misses: int = DEFAULT_TOLERABLE_MISSES,
        deadline_ms: int = 0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.storage_conn_id = storage_conn_id
        self.instants = instants
        self.writer_task_id = writer_task_id
        self.until = [str(fate) for fate in until]
        self.match = str(match)
        self.poll_s = poll_s
        self.interval_ms = interval_ms
        self.tolerable_misses = tolerable_misses
        self.deadline_ms = deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        names = ("table", "storage_conn_id", "instants", "writer_task_id", "until", "match")
        times = ("poll_s", "interval_ms", "tolerable_misses", "deadline_ms")
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {name: getattr(self, name) for name in (*names, *times)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and tell: a task once, an asset's watcher again and again."""
        begun_s, told = time.monotonic(), None
        while True:
            event = await self._event(told)
            if event["status"] != "reached" and self._is_of_an_asset:
                # Airflow 3.3.2 starts a watcher that has ended again at once, each time with an event.
                self.log.error("The table cannot be watched: %s", event.get("message", event["status"]))
                await asyncio.sleep(_WATCHERS_PAUSE_S)
                continue
            told = event
            await until_earliest(begun_s)
            yield TriggerEvent(told)
            if not self._is_of_an_asset:
                return

    @property
    def _is_of_an_asset(self) -> bool:
        return self.task_instance is None and self.trigger_id is not None  # dag.test() gives neither

    async def _event(self, told: dict[str, Any] | None) -> dict[str, Any]:
        left_s = None
        if self.deadline_ms:  # one look there must be, also after a long halt of the triggerer
            left_s = max(_ONE_LOOK_S, self.deadline_ms / 1000 - time.time())
        try:
            watched = self._watched
            async with asyncio.timeout(left_s), shared_watch(watched) as watch:
                return await self._reached(watch, watched, told)
        except TimeoutError:
            return {"status": "timeout"}
        except OccError as error:
            return {"status": "error", "message": str(error)}

    @property
    def _watched(self) -> WatchTarget:
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        poll_s = self.poll_s or self.interval_ms / 4000
        return WatchTarget(canonical_table(self.table), self.storage_conn_id, rule, poll_s)

    async def _reached(
        self, watch: SharedWatch, watched: WatchTarget, told: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Wait for an event that is another than the last one."""
        awaited = Awaited(tuple(map(Fate, self.until)), Match(self.match))
        if awaited.match is Match.ALL:
            await watch.current()
        seen: WatchResult | None = None
        while True:
            seen = await watch.changes.after(seen)
            if isinstance(seen, TableUnreadableError):
                self._tell_again(seen)
                continue
            if isinstance(seen, OccError):
                raise seen
            reached = awaited.reached(await self._writers(seen, watched))
            event = {"status": "reached", "writers": list(map(writer_payload, reached or ()))}
            if reached is not None and event != told:
                self._tell_clock(seen)
                return event

    async def _writers(self, sight: Observation, watched: WatchTarget) -> Sequence[Writer]:
        """Return the writers that are watched; what became of old ones stands in the table's files."""
        wanted = await self._own_instants(watched.poll_s) or parse_instants(self.instants)
        if wanted is None:
            return tuple(sight.pending.values())
        if sight.pending.keys() >= set(wanted):
            return tuple(map(sight.writer, wanted))
        found = await self._asked(watched, lambda: list(map(sight.writer, wanted)))
        if any(writer.fate is Fate.GONE for writer in found):  # it may have begun after that look
            found = await self._asked(
                watched, lambda: list(map(watched.open().observe().writer, wanted))
            )
        return found

    async def _asked(self, watched: WatchTarget, ask: Callable[[], list[Writer]]) -> list[Writer]:
        while True:
            try:
                return await in_thread(watched.service, ask)
            except TableUnreadableError as error:
                self._tell_again(error)
                await asyncio.sleep(watched.poll_s)

    async def _own_instants(self, poll_s: float) -> tuple[str, ...] | None:
        """Wait until the writing task has told its instants."""
        if self.writer_task_id is None:
            return None
        ti = self.task_instance
        if ti is None:
            raise ConfigurationError(
                "writer_task_id", "only a task has a run with others", remedy="give instants, or nothing"
            )
        own = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": self.writer_task_id}
        while True:
            told = await in_thread("airflow", lambda: XCom.get_one(key=INSTANTS_KEY, **own))
            if told:
                return parse_instants(told)
            await asyncio.sleep(poll_s)

    def _tell_again(self, error: TableUnreadableError) -> None:
        self.log.warning("The table cannot be read, asking again: %s", error)

    def _tell_clock(self, sight: Observation) -> None:
        if sight.clock is None:
            return
        self.log.info("The storage's clock is ahead of this host's by %s.", sight.clock)
        if sight.clock.minimum_ms > self.interval_ms:
            self.log.warning(
                "The clocks of the storage and of this host differ by more than a heartbeat's interval; "
                "a lazy clean on such a host errs by as much. Remedy: set the clocks."
            )


def parse_instants(given: object) -> tuple[str, ...] | None:
    """Return the requested times that were given as one, or as several; ``None`` for all writers.

    :raises ConfigurationError: if one of them is no instant.
    """
    if given is None:
        return None
    found = (given,) if isinstance(given, str) else given
    if isinstance(found, Sequence) and found and all(str(one).isdecimal() for one in found):
        return tuple(map(str, found))
    raise ConfigurationError(
        "instants",
        f"{given!r} is no requested time of an instant",
        remedy="give it as the timeline shows it, such as 20261121031500000, or leave it out for all "
        "writers of the table",
    )


def writer_payload(writer: Writer) -> dict[str, Any]:
    """Return a writer as an event tells of it: nothing in it depends on when it is told."""
    return {
        "instant": writer.instant,
        "action": writer.action,
        "fate": writer.fate.value,
        "last_tick_ms": writer.last_ms,
    }
