"""One watch over a table's writers for everything in this process that waits for them."""

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
    """What is watched: who watches the same shares one look at it.

    :param table: canonical base path of the table.
    :param storage_conn_id: Airflow connection of its storage, or ``None``.
    :param rule: how heartbeats are judged.
    :param poll_s: seconds between two looks.
    """

    table: str
    storage_conn_id: str | None
    rule: HeartbeatRule
    poll_s: float

    @property
    def service(self) -> str:
        """The storage, whose answers are waited for in threads of its own."""
        return f"{self.table.partition('://')[0]}-{self.storage_conn_id}"

    def open(self) -> WriterWatch:
        """Return a watch of one's own over it.

        :raises ConfigurationError: if no installed provider has a file system for the storage.
        """
        return WriterWatch(open_table(self.table, self.storage_conn_id), self.rule)


WatchResult = Observation | OccError
"""A look; or why there is none: a ``TableUnreadableError`` may pass, any other ends the watch."""


class Channel:
    """Tells the newest of what was seen to everybody who waits for it."""

    def __init__(self) -> None:
        self.newest: WatchResult | None = None
        self._next = asyncio.Event()

    def tell(self, seen: WatchResult) -> None:
        """Wake everybody."""
        self.newest = seen
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, seen: WatchResult | None) -> WatchResult:
        """Return what is newer than what the caller has seen, at once if there is something.

        :param seen: what this returned last, ``None`` at first.
        """
        while self.newest is None or self.newest is seen:
            await self._next.wait()
        return self.newest


class SharedWatch:
    """The looks at one table, for all who wait for what they tell.

    ``looks`` tells every look; ``changes`` those that show another fate of some writer, or another
    timeline, than the last, so that a thousand waiting triggers cost nothing while nothing happens.

    :param watched: the table.
    """

    def __init__(self, watched: WatchTarget) -> None:
        self.users = 0
        self.looks = Channel()
        self.changes = Channel()
        self._watched = watched
        self._looked_s = -math.inf
        self._polling = asyncio.create_task(self._poll())

    async def current(self) -> None:
        """Wait for a look that begins after now: an older one does not show who has begun since."""
        called_s = asyncio.get_running_loop().time()
        while self._looked_s < called_s and not self._polling.done():
            await self.looks.after(self.looks.newest)

    async def stop(self) -> None:
        """Look no more."""
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)

    async def _poll(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), self._watched.poll_s
        # Tables that are watched since the same moment are not all looked at in the same moment.
        next_s = loop.time() + random.uniform(0, pause_s)  # noqa: S311 - no secret
        watch: WriterWatch | None = None
        while True:
            began_s = loop.time()
            try:
                if watch is None:
                    watch = await in_thread(self._watched.service, self._watched.open)
                self._tell(await in_thread(self._watched.service, self._look, watch), began_s)
            except TableUnreadableError as error:
                self._tell(error, began_s)
            except OccError as error:
                self._tell(error, began_s)
                return
            except Exception as error:  # noqa: BLE001 - raised where somebody waits
                self._tell(OccError(f"{self._watched.table} cannot be watched: {error!r}"), began_s)
                return
            if self._next_expiry_s < next_s - loop.time():
                await asyncio.sleep(self._next_expiry_s)
                continue
            await asyncio.sleep(next_s - loop.time())
            # After a halt all tables are late; each keeps its own place in the period all the same.
            next_s += pause_s * (1 + max(0.0, loop.time() - next_s) // pause_s)

    @property
    def _next_expiry_s(self) -> float:
        """Seconds until a late writer is dead for Hudi, as of the last look: that is looked at then."""
        seen = self.looks.newest
        writers = seen.pending.values() if isinstance(seen, Observation) else ()
        margins = (one.margin_ms for one in writers if one.fate is Fate.LATE)
        return min((ms + 1 for ms in margins if ms is not None), default=math.inf) / 1000

    def _look(self, watch: WriterWatch) -> Observation:
        sight = watch.observe()
        metrics.writers(self._watched.table, sight.pending.values(), self._watched.rule)
        return sight

    def _tell(self, seen: WatchResult, began_s: float) -> None:
        self._looked_s = began_s
        self.looks.tell(seen)
        if _essence(seen) != _essence(self.changes.newest):
            self.changes.tell(seen)


def _essence(seen: WatchResult | None) -> object:
    return (seen.fates, seen.snapshot.timeline) if isinstance(seen, Observation) else type(seen)


_watches: dict[tuple[asyncio.AbstractEventLoop, WatchTarget], SharedWatch] = {}


@asynccontextmanager
async def shared_watch(watched: WatchTarget) -> AsyncIterator[SharedWatch]:
    """Share the watch over a table; the last one who leaves ends it.

    :param watched: the table.
    """
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
