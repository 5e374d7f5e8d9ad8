"""The tables that this API server knows, by the keys in URLs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow.configuration import conf
from starlette.exceptions import HTTPException

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.task.run import site
from airflow_occ_provider.ui import SECTION
from airflow_occ_provider.ui.known_tables import (
    Published,
    TableSource,
    by_key,
    configured_tables,
    read_published,
    union,
)
from airflow_occ_provider.ui.shared_read import SharedRead
from airflow_occ_provider.ui.table_reads import PERIOD_S, TableReads


class Catalog:
    """The known tables and the site, as Airflow had them when they were read last.

    :param reads: reads the queues.
    """

    def __init__(self, reads: TableReads) -> None:
        self._reads = reads
        self._configured: tuple[str | None, tuple[TableSource, ...]] = None, ()
        pool = ThreadPoolExecutor(2, "hudi-ui-airflow")  # apart from storages, which can block threads
        self._published = SharedRead(read_published, PERIOD_S, pool)
        self._site = SharedRead(site, PERIOD_S, pool)

    async def published(self, until_s: float) -> Published:
        """Return what the newest tasks have published.

        :param until_s: see ``table_reads.page_end``.
        :raises HTTPException: if it was never read.
        """
        reading = await self._published.latest(until_s)
        if reading.value is None:
            raise HTTPException(500 if reading.problem else 503)
        return reading.value

    async def site(self, until_s: float) -> str:
        """Return the id of this Airflow; empty if it has none, or was never read.

        :param until_s: see ``table_reads.page_end``.
        """
        return (await self._site.latest(until_s)).value or ""

    async def named(self, until_s: float) -> tuple[TableSource, ...]:
        """Return the tables that the configuration or a task names, some twice.

        :param until_s: see ``table_reads.page_end``.
        """
        tables_json = conf.get(SECTION, "ui_tables", fallback=None)
        if tables_json != self._configured[0]:  # else what is wrong in it was logged before
            self._configured = tables_json, configured_tables()
        return (*self._configured[1], *(await self.published(until_s)).tables.values())

    async def tables(self, until_s: float) -> dict[str, TableSource]:
        """Return all known tables by key, without those of queues that do not answer.

        :param until_s: see ``table_reads.page_end``.
        """
        named = await self.named(until_s)
        locks = {source.lock_conn_id for source in named if source.lock_conn_id}
        half_s = (time.monotonic() + until_s) / 2  # the page's own reads have the other half
        return union(named, await self._reads.queues(locks, half_s))

    async def find(self, key: str, until_s: float) -> TableSource | None:
        """Return the table of a key; the queues are read only if they alone know it.

        :param until_s: see ``table_reads.page_end``.
        """
        named = union(await self.named(until_s), {})
        return by_key(named, key) or by_key(await self.tables(until_s), key)

    async def of_paths(self, paths: Iterable[str], until_s: float) -> dict[str, TableSource]:
        """Return the known ones of some tables, by their path as it was given.

        :param until_s: see ``table_reads.page_end``; the queues are read only if they alone know one.
        """
        canonical = {path: table_path for path in paths if (table_path := _canonical(path))}
        sources = {source.path: source for source in union(await self.named(until_s), {}).values()}
        if not sources.keys() >= set(canonical.values()):
            sources = {source.path: source for source in (await self.tables(until_s)).values()}
        return {
            path: sources[table_path] for path, table_path in canonical.items() if table_path in sources
        }


def _canonical(path: str) -> str | None:
    try:
        return canonical_table(path)
    except ConfigurationError:
        return None
