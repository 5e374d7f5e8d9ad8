"""One shared watch over a table per process: of its writers, or of its commits."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from airflow_occ_provider.errors import OccError, TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.incremental import TableWrites, table_writes
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.watch import Observation, WriterWatch
from airflow_occ_provider.task import metrics
from airflow_occ_provider.triggers.threads import in_thread

T = TypeVar("T")


class Target(Protocol[T]):
    """The key of a watch: equal targets share one watch."""

    @property
    def table(self) -> str:
        """Canonical base path of the table."""

    @property
    def poll_s(self) -> float:
        """Seconds between two listings."""

    @property
    def service(self) -> str:
        """The name of the storage, which has its own threads."""

    def open(self) -> Callable[[], T]:
        """Return what looks at the table, once at each call.

        :raises ConfigurationError: if no installed provider has a file system for the storage.
        """

    def state(self, seen: T) -> object:
        """Return what has to differ for a listing to count as a change."""

    def due_s(self, seen: T) -> float:
        """Return the seconds after which to look again, if that is before the next period."""


class WatchTarget(NamedTuple):
    """The key of a watch over the writers of a table.

    :param table: canonical base path of the table.
    :param storage_conn_id: Airflow connection of its storage, or ``None``.
    :param poll_s: seconds between two listings.
    """

    table: str
    storage_conn_id: str | None
    rule: HeartbeatRule
    poll_s: float

    @property
    def service(self) -> str:
        """The name of the storage, which has its own threads."""
        return storage_name(self.table, self.storage_conn_id)

    def open(self) -> Callable[[], Observation]:
        """Return what lists the heartbeats of the table, and its timeline if needed."""
        watch = WriterWatch(open_table(self.table, self.storage_conn_id), self.rule)

        def look() -> Observation:
            sight = watch.observe()
            metrics.writers(self.table, sight.pending.values(), self.rule)
            return sight

        return look

    def state(self, seen: Observation) -> object:
        """Return the writers' fates and the timeline."""
        return seen.fates, seen.snapshot.timeline

    def due_s(self, seen: Observation) -> float:
        """Return the seconds until the next late writer expires."""
        margins = (one.margin_ms for one in seen.pending.values() if one.fate is Fate.LATE)
        return min((ms + 1 for ms in margins if ms is not None), default=math.inf) / 1000


@dataclass(frozen=True, slots=True)
class _Target:
    """The key of a watch over a table.

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
        return storage_name(self.table, self.storage_conn_id)

    def due_s(self, seen: object) -> float:  # noqa: ARG002
        """Return infinity: between two listings nothing is due."""
        return math.inf


@dataclass(frozen=True, slots=True)
class CommitTarget(_Target):
    """The key of a watch over the commits of a table, which need not exist yet."""

    def open(self) -> Callable[[], Snapshot]:
        """Return what lists the timeline of the table."""
        table, last = open_table(self.table, self.storage_conn_id), list[Snapshot]()

        def look() -> Snapshot:
            last[:] = [table.snapshot(*last, missing_ok=True)]
            return last[0]

        return look

    def state(self, seen: Snapshot) -> object:
        """Return the completed writes."""
        return seen.config.version, seen.timeline.completed_writes()


@dataclass(frozen=True, slots=True)
class WindowTarget(_Target):
    """The key of a watch over what the consumers of a table can read next."""

    def open(self) -> Callable[[], TableWrites]:
        """Return what lists the timeline of the table and, if they matter, the heartbeats."""
        table, last = open_table(self.table, self.storage_conn_id), list[Snapshot]()

        def look() -> TableWrites:
            seen = table_writes(table, previous=last[0] if last else None)
            last[:] = [seen.snapshot]
            return seen

        return look

    def state(self, seen: TableWrites) -> object:
        """Return the completed writes, and the live ones that hold windows up."""
        snapshot = seen.snapshot
        return snapshot.config.version, snapshot.timeline.completed_writes(), seen.pending.live


def storage_name(table: str, storage_conn_id: str | None) -> str:
    """Return the name of a storage, for its threads."""
    return f"{table.partition('://')[0]}-{storage_conn_id}"


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

    async def after(self, seen: WatchResult[T] | None) -> WatchResult[T]:
        """Wait for a result newer than the given one, and return it.

        :param seen: the caller's last result, ``None`` at first.
        """
        while self.newest is None or self.newest is seen:
            await self._next.wait()
        return self.newest

    async def read_after(self, seen: T | None, on_unreadable: Callable[[OccError], object]) -> T:
        """Wait for a listing newer than the given one, and return it.

        :param seen: the caller's last listing, ``None`` at first.
        :param on_unreadable: called with each failure that is retried.
        :raises OccError: the one that ended the watch.
        """
        last: WatchResult[T] | None = seen
        while True:
            last = await self.after(last)
            if isinstance(last, TableUnreadableError):
                on_unreadable(last)
            elif isinstance(last, OccError):
                raise last
            else:
                return last


class SharedWatch(Generic[T]):
    """The listings of one table, shared by all triggers that watch it.

    ``listings`` publishes every listing. ``changes`` publishes only listings with a changed state,
    so that a thousand waiting triggers cost nothing while nothing happens.
    """

    def __init__(self, watched: Target[T]) -> None:
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
        seen = self.listings.newest
        if seen is None or isinstance(seen, OccError):
            return math.inf
        return self._watched.due_s(seen)

    def _publish(self, seen: WatchResult[T], began_s: float) -> None:
        self._listed_s = began_s
        self.listings.publish(seen)
        if self._state(seen) != self._state(self.changes.newest):
            self.changes.publish(seen)

    def _state(self, seen: WatchResult[T] | None) -> object:
        if seen is None or isinstance(seen, OccError):
            return type(seen)
        return self._watched.state(seen)


_watches: dict[tuple[asyncio.AbstractEventLoop, Target[Any]], SharedWatch[Any]] = {}


@asynccontextmanager
async def shared_watch(watched: Target[T]) -> AsyncIterator[SharedWatch[T]]:
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
