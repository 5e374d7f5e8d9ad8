"""One shared watch over a table's writers per process."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from airflow_occ_provider.errors import OccError, TableUnreadableError
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hooks.threads import in_thread
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.watch import Observation, WriterWatch


class WatchTarget(NamedTuple):
    """The key of a watch: equal targets share one watch.

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
        return f"{self.table.partition('://')[0]}-{self.storage_conn_id}"

    def open(self) -> WriterWatch:
        """Return a new, unshared watch.

        :raises ConfigurationError: if no installed provider has a file system for the storage.
        """
        return WriterWatch(open_table(self.table, self.storage_conn_id), self.rule)


WatchResult = Observation | OccError
"""A listing or its error: all but ``TableUnreadableError`` end the watch."""


class Channel:
    """The newest result, published to all waiters."""

    def __init__(self) -> None:
        self.newest: WatchResult | None = None
        self._next = asyncio.Event()

    def publish(self, result: WatchResult) -> None:
        """Replace the newest result and wake all waiters."""
        self.newest = result
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, seen: WatchResult | None) -> WatchResult:
        """Wait for a result newer than the given one, and return it.

        :param seen: the caller's last result, ``None`` at first.
        """
        while self.newest is None or self.newest is seen:
            await self._next.wait()
        return self.newest


class SharedWatch:
    """The listings of one table, shared by all triggers that watch it.

    ``listings`` publishes every listing. ``changes`` publishes only listings with a changed fate or
    timeline, so that a thousand waiting triggers cost nothing while nothing happens.
    """

    def __init__(self, watched: WatchTarget) -> None:
        self.users = 0
        self.listings = Channel()
        self.changes = Channel()
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
        watch: WriterWatch | None = None
        while True:
            began_s = loop.time()
            try:
                if watch is None:
                    watch = await in_thread(self._watched.service, self._watched.open)
                self._publish(await in_thread(self._watched.service, self._read, watch), began_s)
            except TableUnreadableError as error:
                self._publish(error, began_s)
            except OccError as error:
                self._publish(error, began_s)
                return
            except Exception as error:  # noqa: BLE001 - raised in the waiters
                self._publish(OccError(f"{self._watched.table} cannot be watched: {error!r}"), began_s)
                return
            if self._next_expiry_s < next_s - loop.time():
                await asyncio.sleep(self._next_expiry_s)
                continue
            await asyncio.sleep(next_s - loop.time())
            # After a halt all tables are late; each keeps its own offset in the period.
            next_s += pause_s * (1 + max(0.0, loop.time() - next_s) // pause_s)

    @property
    def _next_expiry_s(self) -> float:
        """Seconds from the last listing until the next late writer expires."""
        seen = self.listings.newest
        writers = seen.pending.values() if isinstance(seen, Observation) else ()
        margins = (one.margin_ms for one in writers if one.fate is Fate.LATE)
        return min((ms + 1 for ms in margins if ms is not None), default=math.inf) / 1000

    def _read(self, watch: WriterWatch) -> Observation:
        sight = watch.observe()
        metrics.writers(self._watched.table, sight.pending.values(), self._watched.rule)
        return sight

    def _publish(self, seen: WatchResult, began_s: float) -> None:
        self._listed_s = began_s
        self.listings.publish(seen)
        if _state(seen) != _state(self.changes.newest):
            self.changes.publish(seen)


def _state(seen: WatchResult | None) -> object:
    return (seen.fates, seen.snapshot.timeline) if isinstance(seen, Observation) else type(seen)


_watches: dict[tuple[asyncio.AbstractEventLoop, WatchTarget], SharedWatch] = {}


@asynccontextmanager
async def shared_watch(watched: WatchTarget) -> AsyncIterator[SharedWatch]:
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
