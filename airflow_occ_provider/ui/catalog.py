"""The tables that this API server knows, by the keys in URLs."""

from __future__ import annotations

import time

from starlette.concurrency import run_in_threadpool

from airflow_occ_provider.ui.known_tables import (
    Published,
    TableSource,
    by_key,
    configured_tables,
    read_published,
    union,
)
from airflow_occ_provider.ui.looks import PERIOD_S, Looks


class Catalog:
    """The known tables; what tasks have published is read anew after some seconds.

    :param looks: reads the queues.
    """

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._published = Published()
        self._read_s = float("-inf")

    async def published(self) -> Published:
        """Return what the newest tasks have published."""
        if time.monotonic() - self._read_s >= PERIOD_S:
            self._published = await run_in_threadpool(read_published)
            self._read_s = time.monotonic()
        return self._published

    async def tables(self, until_s: float) -> dict[str, TableSource]:
        """Return all known tables by key.

        :param until_s: see ``looks.page_end``.
        """
        configured, published = configured_tables(), (await self.published()).tables.values()
        named = {one.lock_conn_id for one in (*configured, *published) if one.lock_conn_id}
        return union(configured, published, await self._looks.queues(named, until_s))

    async def find(self, key: str, until_s: float) -> TableSource | None:
        """Return the table of a key; the queues are read only if they alone know it.

        :param until_s: see ``looks.page_end``.
        """
        named = union(configured_tables(), (await self.published()).tables.values(), {})
        return by_key(named, key) or by_key(await self.tables(until_s), key)
