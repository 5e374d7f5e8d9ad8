"""One shared watch over a table per process: of its writers, or of its commits."""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from airflow_occ_provider.errors import OccError, TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.incremental import WriteListing, list_writes
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.watch import Observation, WriterWatch
from airflow_occ_provider.task import metrics
from airflow_occ_provider.triggers.base import in_thread

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchTarget(ABC, Generic[T]):
    """What is watched of a table: equal targets share one watch.

    :param table: canonical base path of the table.
    :param storage_conn_id: Airflow connection of its storage, or ``None``.
    :param poll_s: seconds between two listings.
    """

    table: str
    storage_conn_id: str | None
    poll_s: float

    @property
    def service(self) -> str:
        """The name of the storage, which has its own threads."""
        return f"{self.table.partition('://')[0]}-{self.storage_conn_id}"

    @abstractmethod
    def open(self) -> Callable[[], T]:
        """Return what looks at the table, once at each call.

        :raises ConfigurationError: if no installed provider has a file system for the storage.
        """

    @abstractmethod
    def state(self, listing: T) -> object:
        """Return what has to differ for a listing to count as a change."""

    def due_s(self, listing: T) -> float:  # noqa: ARG002
        """Return the seconds after which to look again, if that is before the next period."""
        return math.inf


@dataclass(frozen=True, slots=True)
class WriterTarget(WatchTarget[Observation]):
    """The writers of a table."""

    rule: HeartbeatRule

    def open(self) -> Callable[[], Observation]:
        """Return what lists the heartbeats of the table, and its timeline if needed."""
        watch = WriterWatch(open_table(self.table, self.storage_conn_id), self.rule)

        def look() -> Observation:
            observation = watch.observe()
            metrics.writers(self.table, observation.pending.values(), self.rule)
            return observation

        return look

    def state(self, listing: Observation) -> object:
        """Return the writers' fates and the timeline."""
        return listing.fates, listing.snapshot.timeline

    def due_s(self, listing: Observation) -> float:
        """Return the seconds until the next late writer expires."""
        writers = listing.pending.values()
        margins = (writer.margin_ms for writer in writers if writer.fate is Fate.LATE)
        return min((ms + 1 for ms in margins if ms is not None), default=math.inf) / 1000


@dataclass(frozen=True, slots=True)
class CommitTarget(WatchTarget[Snapshot]):
    """The commits of a table, which need not exist yet."""

    def open(self) -> Callable[[], Snapshot]:
        """Return what lists the timeline of the table."""
        table, last = open_table(self.table, self.storage_conn_id), list[Snapshot]()

        def look() -> Snapshot:
            last[:] = [table.snapshot(*last, missing_ok=True)]
            return last[0]

        return look

    def state(self, listing: Snapshot) -> object:
        """Return the completed writes."""
        return listing.config.version, listing.timeline.completed_writes()


@dataclass(frozen=True, slots=True)
class WindowTarget(WatchTarget[WriteListing]):
    """What the consumers of a table can read next."""

    def open(self) -> Callable[[], WriteListing]:
        """Return what lists the timeline of the table and, if they matter, the heartbeats."""
        table, last = open_table(self.table, self.storage_conn_id), list[Snapshot]()

        def look() -> WriteListing:
            writes = list_writes(table, previous=last[0] if last else None)
            last[:] = [writes.snapshot]
            return writes

        return look

    def state(self, listing: WriteListing) -> object:
        """Return the completed writes, and the live ones that hold windows up."""
        snapshot = listing.snapshot
        return snapshot.config.version, snapshot.timeline.completed_writes(), listing.pending.live


WatchResult: TypeAlias = T | OccError
"""A listing or its error: all but ``TableUnreadableError`` end the watch."""


class Channel(Generic[T]):
    """The newest result, published to all waiters."""

    def __init__(self) -> None:
        self.newest: WatchResult[T] | None = None
        self._next = asyncio.Event()

    def publish(self, result: WatchResult[T]) -> None:
        """Replace the newest result and wake all waiters."""
        self.newest = result
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, last: WatchResult[T] | None) -> WatchResult[T]:
        """Wait for a result newer than the given one, and return it.

        :param last: the caller's last result, ``None`` at first.
        """
        while self.newest is None or self.newest is last:
            await self._next.wait()
        return self.newest

    async def read_after(self, last: T | None, on_unreadable: Callable[[OccError], object]) -> T:
        """Wait for a listing newer than the given one, and return it.

        :param last: the caller's last listing, ``None`` at first.
        :param on_unreadable: called with each failure that is retried.
        :raises OccError: the one that ended the watch.
        """
        result: WatchResult[T] | None = last
        while True:
            result = await self.after(result)
            if isinstance(result, TableUnreadableError):
                on_unreadable(result)
            elif isinstance(result, OccError):
                raise result
            else:
                return result


class SharedWatch(Generic[T]):
    """The listings of one table, shared by all triggers that watch it.

    ``listings`` publishes every listing. ``changes`` publishes only listings with a changed state,
    so that a thousand waiting triggers cost nothing while nothing happens.
    """

    def __init__(self, watched: WatchTarget[T]) -> None:
        self.users = 0
        self.listings = Channel[T]()
        self.changes = Channel[T]()
        self._watched = watched
        self._listed_s = -math.inf
        self._polling = asyncio.create_task(self._poll())

    async def current(self) -> None:
        """Wait for a listing that begins after the call, which shows all writers so far."""
        called_s = asyncio.get_running_loop().time()
        while self._listed_s < called_s and not self._polling.done():
            await self.listings.after(self.listings.newest)

    async def stop(self) -> None:
        """Stop polling."""
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)

    async def _poll(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), self._watched.poll_s
        # A random start spreads the listings of tables whose watches begin together.
        next_s = loop.time() + random.uniform(0, pause_s)  # noqa: S311 - not a secret
        look: Callable[[], T] | None = None
        while True:
            began_s = loop.time()
            try:
                if look is None:
                    look = await in_thread(self._watched.service, self._watched.open)
                self._publish(await in_thread(self._watched.service, look), began_s)
            except TableUnreadableError as error:
                self._publish(error, began_s)
            except OccError as error:
                self._publish(error, began_s)
                return
            except Exception as error:  # noqa: BLE001 - raised in the waiters
                self._publish(OccError(f"{self._watched.table} cannot be watched: {error!r}"), began_s)
                return
            if self._due_s < next_s - loop.time():
                await asyncio.sleep(self._due_s)
                continue
            await asyncio.sleep(next_s - loop.time())
            # After a halt all tables are late; each keeps its own offset in the period.
            next_s += pause_s * (1 + max(0.0, loop.time() - next_s) // pause_s)

    @property
    def _due_s(self) -> float:
        newest = self.listings.newest
        if newest is None or isinstance(newest, OccError):
            return math.inf
        return self._watched.due_s(newest)

    def _publish(self, result: WatchResult[T], began_s: float) -> None:
        self._listed_s = began_s
        self.listings.publish(result)
        if self._state(result) != self._state(self.changes.newest):
            self.changes.publish(result)

    def _state(self, result: WatchResult[T] | None) -> object:
        if result is None or isinstance(result, OccError):
            return type(result)
        return self._watched.state(result)


_watches: dict[tuple[asyncio.AbstractEventLoop, WatchTarget[Any]], SharedWatch[Any]] = {}


@asynccontextmanager
async def shared_watch(watched: WatchTarget[T]) -> AsyncIterator[SharedWatch[T]]:
    """Share the watch over a table; the last user's exit stops it."""
    key = (asyncio.get_running_loop(), watched)
    if key not in _watches:
        _watches[key] = SharedWatch(watched)
    watch = _watches[key]
    watch.users += 1
    try:
        yield watch
    finally:
        watch.users -= 1
        if not watch.users:
            if _watches.get(key) is watch:
                del _watches[key]
            await watch.stop()
