"""Watchers of commits to compare with, and the probe as a watcher."""

from __future__ import annotations

import asyncio
import posixpath
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import fsspec
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_occ_provider.hudi.format.commit_metadata import read_commit
from airflow_occ_provider.storage import folder
from airflow_occ_provider.triggers import commit
from airflow_occ_provider.triggers.commit import HudiCommitTrigger
from airflow_occ_provider.triggers.shared_watch import CommitTarget
from tests.bench.watchers import ProbeTrigger, count

LISTED, WATCHING = "timelines listed", "watchers begun"
_COMMIT = re.compile(r"(\d+)_(\d+)\.(commit|deltacommit|replacecommit)").fullmatch


class IdleCommitTrigger(HudiCommitTrigger):
    """Does nothing, to measure Airflow itself."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        count(WATCHING)
        await asyncio.Event().wait()
        yield TriggerEvent({})


class CountedCommitTrigger(HudiCommitTrigger):
    """Ours, counted from its first request: a triggerer imports this module before it."""


class LoneCommitTrigger(HudiCommitTrigger):
    """Lists its table for itself in each period, and reads new commits: the plainest way.

    It knows table version 8 only, and neither an upgrade, a table made anew, a time-out, nor a restart.
    """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        count(WATCHING)
        files = fsspec.filesystem("file")
        seen = await asyncio.to_thread(self._commits, files)
        await asyncio.sleep(random.uniform(0, self.poll_s))
        while True:
            now = await asyncio.to_thread(self._commits, files)
            if new := sorted(now - seen):
                read = [await asyncio.to_thread(self._read, files, name) for name in new]
                yield TriggerEvent({"table": self.table, "commits": read})
            seen = now
            await asyncio.sleep(self.poll_s)

    def _commits(self, files: Any) -> frozenset[str]:
        count(LISTED)
        names = map(posixpath.basename, files.ls(f"{self.table}/.hoodie/timeline", detail=False))
        return frozenset(name for name in names if _COMMIT(name))

    def _read(self, files: Any, name: str) -> dict[str, Any]:
        metadata = read_commit(files.cat_file(f"{self.table}/.hoodie/timeline/{name}"))
        instant = name.partition("_")[0]
        return {"instant": instant, "operation": metadata.operation_type}


class ProbeWatcher(ProbeTrigger, BaseEventTrigger):
    """The probe, in the watcher of an asset."""


def _count_listings() -> None:
    listed = folder.list_folder

    def counted(file_system: Any, path: str) -> Any:
        if path.endswith("/timeline"):
            count(LISTED)
        return listed(file_system, path)

    folder.list_folder = counted


def _count_watchers() -> None:
    share = commit.shared_watch

    def counted(watched: CommitTarget) -> Any:
        count(WATCHING)
        return share(watched)

    commit.shared_watch = counted  # type: ignore[assignment]


_count_listings()
_count_watchers()
