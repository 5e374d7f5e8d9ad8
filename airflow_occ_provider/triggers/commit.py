"""Triggers that wait for commits: of any writer, or for a consumer to read."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_occ_provider.errors import HistoryUnreadableError, OccError, TableUnreadableError
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.hudi.incremental.window import Window
from airflow_occ_provider.reading.new_commits import (
    CommitFilter,
    NewCommits,
    beginning,
    event_of,
    new_commits,
)
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.incremental import WriteListing, window_after
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.triggers.base import WaitingTrigger, in_thread
from airflow_occ_provider.triggers.shared_watch import CommitTarget, WindowTarget, shared_watch

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors


DEFAULT_POLL_S = 30.0
_CONFIRM_S = 5.0
_RETRY_S = 60.0
_STORE_S = 3600.0


@dataclass(kw_only=True, eq=False, repr=False)
class HudiCommitTrigger(WaitingTrigger, BaseEventTrigger):
    """A trigger that fires when writers have committed to a table.

    In an ``AssetWatcher`` it keeps running, and makes an asset event of each listing with new commits.
    Its payload has the table and its ``commits`` in the order of their completion: ``instant``,
    ``completion_time``, ``action``, ``operation``, ``partitions`` (100 at most), ``records`` and the
    ``signature`` of a writer of this provider. Commits of table services are left out.

    What it has reported is kept with the asset, and stored some seconds after the event: a commit is
    reported again if the triggerer dies in between. Airflow may give several events to one run. A table
    that does not exist yet is waited for. One that was made anew is recognised: all its commits are new.

    As a task's trigger it fires once. Event statuses are then ``committed``, ``timeout`` and ``error``.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param partitions: partition paths, each with everything below it, of which a commit has to write
        one. Default: any.
    :param operations: Hudi's operation types, such as ``upsert``. Default: any.
    :param signed: labels that the signature of a commit has to have, such as ``dag_id`` and ``run_id``.
    :param start: ``"latest"`` to begin with the first commit after the trigger, ``"earliest"`` with the
        oldest one of the active timeline, or the requested time of an instant, to begin after it.
    :param since: the checkpoint after which commits count, for a task's trigger.
    :param poll_s: seconds between two listings; all triggers of a table share them.
    :param deadline_ms: epoch milliseconds at which a task's trigger times out; 0 for never.
    :param asset: anything, such as the asset's name: equal triggers of two assets in one file would
        share their state.
    """

    table: str
    storage_conn_id: str | None = None
    partitions: Sequence[str] = ()
    operations: Sequence[str] = ()
    signed: dict[str, str] | None = None
    start: str = "latest"
    since: dict[str, Any] | None = None
    poll_s: float = DEFAULT_POLL_S
    asset: str = ""

    @property
    def _watched(self) -> CommitTarget:
        return CommitTarget(canonical_table(self.table), self.storage_conn_id, self.poll_s)

    @property
    def wanted(self) -> CommitFilter:
        """The commits that it waits for."""
        return CommitFilter.of(self.partitions, self.operations, self.signed)

    async def event(self) -> dict[str, Any]:
        """Return the first commits that it waits for."""
        since = Checkpoint.from_json(self.since) if self.since else None
        async with aclosing(self._batches(since)) as batches:
            news = await anext(batch async for batch in batches if batch.commits)
            return {"status": "committed", **self._payload(news)}

    async def watch(self) -> AsyncGenerator[TriggerEvent]:
        """Fire for each listing with new commits."""
        while True:
            try:
                stored, stored_s = await self._store.aget(self._key), time.monotonic()
                since = Checkpoint.from_json(stored) if isinstance(stored, dict) else None
                async with aclosing(self._batches(since)) as batches:
                    async for news in batches:
                        if news.commits:
                            yield TriggerEvent(self._payload(news))
                            # After that the event is stored, or was lost with this process.
                            await asyncio.sleep(_CONFIRM_S)
                        is_due = time.monotonic() - stored_s > _STORE_S
                        if news.commits or news.is_beginning or is_due:
                            await self._store.aset(self._key, news.checkpoint.to_json())
                            stored_s = time.monotonic()
            except Exception:  # Airflow 3.3.2 restarts an ended watcher at once
                self.log.exception("Commits of %s cannot be watched; again in a minute.", self.table)
                await asyncio.sleep(_RETRY_S)

    async def _batches(self, since: Checkpoint | None) -> AsyncGenerator[NewCommits]:
        """Yield new commits, at first only the beginning from which to count."""
        snapshot: Snapshot | None = None
        watched = self._watched
        async with shared_watch(watched) as watch:
            while True:
                snapshot = await watch.changes.read_after(snapshot, self.log_retry)
                if since is None:
                    since = await in_thread(watched.service, beginning, snapshot, self.start)
                    yield NewCommits((), since, is_beginning=True)
                while (news := await self._new(watched, snapshot, since)).checkpoint != since:
                    since = news.checkpoint
                    yield news

    async def _new(self, watched: CommitTarget, snapshot: Snapshot, since: Checkpoint) -> NewCommits:
        """Return the commits after a checkpoint; none if only a later listing can show them.

        :raises HistoryUnreadableError: if archived commits have to be read, and cannot.
        """
        news, is_stale = None, False
        while news is None:
            try:
                now = await in_thread(watched.service, snapshot.reload) if is_stale else snapshot
                news = await in_thread(watched.service, new_commits, now, since, self.wanted)
            except HistoryUnreadableError:
                raise
            except TableUnreadableError as error:
                self.log_retry(error)
                is_stale = True
                await asyncio.sleep(self.poll_s)
        if news.made_anew:
            self.log.warning("%s. All its commits are new.", news.made_anew)
        elif not (now.config.exists or since.is_empty):
            self.log.warning("At %s there is no table any more. It is waited for.", self.table)
        return news

    @property
    def _store(self) -> AssetStateStoreAccessors:
        if self.asset_state_store is None:
            raise OccError("an asset's watcher has no state store", remedy="use Airflow 3.3 or later")
        return self.asset_state_store

    def _payload(self, news: NewCommits) -> dict[str, Any]:
        return {"table": self._watched.table, "commits": list(map(event_of, news.commits))}

    @property
    def _key(self) -> str:
        what = json.dumps(
            [self._watched.table, sorted(self.partitions), sorted(self.operations), self.signed]
        )
        return f"hudi_commits_{hashlib.sha256(what.encode()).hexdigest()[:16]}"


@dataclass(kw_only=True, eq=False, repr=False)
class HudiIncrementalWindowTrigger(WaitingTrigger):
    """A trigger that fires when the window after a checkpoint has commits.

    Event statuses: ``ready``, ``timeout``, ``error``. All triggers of one table share one listing per
    period.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param since: the checkpoint as JSON values; ``None`` for nothing read yet.
    :param poll_s: seconds between two listings.
    :param deadline_ms: epoch milliseconds at which it times out.
    """

    table: str
    storage_conn_id: str | None = None
    since: dict[str, Any] | None = None
    poll_s: float

    async def event(self) -> dict[str, Any]:
        """Return the window, once it has commits."""
        watched = WindowTarget(canonical_table(self.table), self.storage_conn_id, self.poll_s)
        since = Checkpoint.from_json(self.since) if self.since else None
        writes: WriteListing | None = None
        async with shared_watch(watched) as watch:
            channel = watch.changes
            while True:
                writes = await channel.read_after(writes, self.log_retry)
                try:
                    window = (await in_thread(watched.service, window_after, since, writes)).window
                except HistoryUnreadableError:
                    raise
                except TableUnreadableError as error:
                    self.log_retry(error)
                    channel = watch.listings
                    continue
                if window.commits:
                    return {"status": "ready", "window": window_facts(self.table, window)}
                self.log.info("%s", why_empty(window))
                channel = watch.changes


def window_facts(table: str, window: Window) -> dict[str, Any]:
    """Return what is said of a window, as ``HudiIncrementalReadOperator`` returns it."""
    commits = [commit.time for commit in window.commits]
    return {"table": table, "commits": commits, "start": window.start, "end": window.end}


def why_empty(window: Window) -> str:
    """Return why there is nothing to read."""
    if held := window.held_up_by:
        return f"The window ends before the pending {', '.join(held)}."
    return f"No commit yet after {window.start or 'the table was made'}."
