"""The tables that this API server knows, by the keys in URLs."""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.concurrency import run_in_threadpool

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.storage.address import canonical_table
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

    async def named(self) -> tuple[TableSource, ...]:
        """Return the tables that the configuration or a task names, some twice."""
        return (*configured_tables(), *(await self.published()).tables.values())

    async def tables(self, until_s: float) -> dict[str, TableSource]:
        """Return all known tables by key, without those of queues that do not answer.

        :param until_s: see ``looks.page_end``.
        """
        named = await self.named()
        locks = {one.lock_conn_id for one in named if one.lock_conn_id}
        half_s = (time.monotonic() + until_s) / 2  # the page's own reads have the other half
        return union(named, (), await self._looks.queues(locks, half_s))

    async def find(self, key: str, until_s: float) -> TableSource | None:
        """Return the table of a key; the queues are read only if they alone know it.

        :param until_s: see ``looks.page_end``.
        """
        named = union(await self.named(), (), {})
        return by_key(named, key) or by_key(await self.tables(until_s), key)

    async def of_paths(self, paths: Iterable[str], until_s: float) -> dict[str, TableSource]:
        """Return the known ones of some tables, by their path as it was given.

        :param until_s: see ``looks.page_end``; the queues are read only if they alone know one.
        """
        canonical = {path: one for path in paths if (one := _canonical(path))}
        known = {one.path: one for one in union(await self.named(), (), {}).values()}
        if not known.keys() >= set(canonical.values()):
            known = {one.path: one for one in (await self.tables(until_s)).values()}
        return {path: known[one] for path, one in canonical.items() if one in known}


def _canonical(path: str) -> str | None:
    try:
        return canonical_table(path)
    except ConfigurationError:
        return None
