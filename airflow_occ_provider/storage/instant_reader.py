"""Reads the files of instants, each once: Hudi never changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from airflow_occ_provider.errors import MetadataCorruptError
from airflow_occ_provider.hudi.format.commit_metadata import (
    CommitMetadata,
    Content,
    RolledBack,
    is_self_describing,
    read_clustering_plan,
    read_commit,
    read_compaction_plan,
    read_deleted_names,
    read_plan_extra,
    read_record,
    read_rolled_back,
    read_rolled_back_times,
)
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.storage.archive import Archive, History
from airflow_occ_provider.storage.folder import TableFolder

_T = TypeVar("_T")
_EMPTY = "is empty"
_MOST_GROUPS_KEPT = 20_000  # some 400 bytes each
# Whose requested file is a plan, so that an empty one is damaged. That of an overwrite may be empty.
_PLANNED = frozenset(
    {"compaction", "logcompaction", "clustering", "clean", "rollback", "restore", "indexing"}
)
_Plan = Callable[[Content], frozenset[FileGroupId] | None]
_PLANS: dict[str, _Plan] = {
    "compaction": read_compaction_plan,
    "logcompaction": read_compaction_plan,
    "clustering": read_clustering_plan,
    "replacecommit": read_clustering_plan,
}
# The history has only the action under which an instant completed.
_ARCHIVED_PLANS: dict[str, _Plan] = {
    "commit": read_compaction_plan,
    "deltacommit": read_compaction_plan,
    "replacecommit": read_clustering_plan,
}


class InstantReader:
    """A reader of the files of a table's instants.

    Each method raises ``TableUnreadableError`` if a file cannot be read or decoded.
    """

    def __init__(self, folder: TableFolder, config: TableConfig) -> None:
        kind: type[Archive | History] = Archive if config.layout_version == 1 else History
        self.archived = kind(folder, config.history_folder)
        self._folder = folder
        self._timeline_folder = config.timeline_folder
        self._decoded_files: dict[tuple[str, str], Any] = {}

    def keep(self, earlier: InstantReader, listed: Collection[str]) -> None:
        """Take over the decoded files of an earlier reader that still exist.

        Of large commits only the youngest are kept: a watcher reads each one once.
        """
        room = _MOST_GROUPS_KEPT
        for key in sorted(earlier._decoded_files.keys(), reverse=True):
            decoded = earlier._decoded_files[key]
            weight = len(decoded.file_groups) if isinstance(decoded, CommitMetadata) else 0
            if key[0] in listed and weight <= room:
                self._decoded_files[key] = decoded
                room -= weight

    def commit(self, instant: Instant) -> CommitMetadata | None:
        """Return the metadata of a completed write; ``None`` if its file is gone.

        Then the instant was archived or rolled back, or an upgrade moved it. An archived instant also
        has none if the upgrade by Hudi 1.0.2 left content that cannot be decoded.

        :raises MetadataCorruptError: if the file is empty or cannot be decoded.
        """
        if instant.archived:
            content = self.archived.contents(instant).metadata or b""
            readable = is_self_describing(content)
            return self._decoded(instant.file_name, content, read_commit) if readable else None
        metadata = self._decode(instant.file_name, read_commit)
        if metadata is None:  # the file is gone or empty
            now = self._folder.read(f"{self._timeline_folder}/{instant.file_name}")
            return None if now is None else self._decoded(instant.file_name, now, read_commit)
        return metadata

    def profile(self, instant: Instant) -> CommitMetadata | None:
        """Return the workload profile of a write; ``None`` if it is missing or empty."""
        return self._decode(instant.inflight_file, read_commit)

    def planned(self, instant: Instant) -> frozenset[FileGroupId] | None:
        """Return the file groups of a compaction's or clustering's plan; else ``None``."""
        if instant.archived:
            plan = self.archived.contents(instant).plan
            reader = _ARCHIVED_PLANS.get(instant.action)
            return self._decoded(instant.file_name, plan, reader) if plan and reader else None
        reader = _PLANS.get(instant.requested_action)
        return self._decode(instant.requested_file, reader) if reader else None

    def plan_extra(self, instant: Instant) -> Mapping[str, str]:
        """Return the extra metadata of a pending clustering's plan; empty if it has none."""
        return self._decode(instant.requested_file, read_plan_extra) or {}

    def rolled_back_times(self, rollback: Instant) -> frozenset[str]:
        """Return the requested times of the instants that a rollback or restore names."""
        name = rollback.file_name if rollback.completed else rollback.requested_file
        return self._decode(name, read_rolled_back_times) or frozenset()

    def rolled_back(self, rollback: Instant) -> RolledBack | None:
        """Return what a rollback takes back; ``None`` if its file is gone.

        An archived one that cannot be decoded since an upgrade has none either.
        """
        if rollback.archived:
            content = self.archived.contents(rollback).metadata or b""
            readable = is_self_describing(content)
            return self._decoded(rollback.file_name, content, read_rolled_back) if readable else None
        name = rollback.file_name if rollback.completed else rollback.requested_file
        return self._decode(name, read_rolled_back)

    def deleted_names(self, instant: Instant) -> frozenset[str]:
        """Return the names of the data files that a clean, rollback or restore deletes."""
        name = instant.file_name if instant.completed else instant.requested_file
        return self._decode(name, read_deleted_names) or frozenset()

    def _decode(self, name: str | None, decode: Callable[[bytes], _T]) -> _T | None:
        if name is None:
            return None
        key = (name, decode.__name__)
        if key not in self._decoded_files:
            content = self._folder.read(f"{self._timeline_folder}/{name}")
            decoded = self._decoded(name, content, decode) if content else None
            if decoded is None and (not content or self.fault(name)):
                return None
            self._decoded_files[key] = decoded
        return cast("_T", self._decoded_files[key])

    def fault(self, name: str) -> str:
        """Return what a diagnosis found wrong with a file; empty if nothing."""
        return (self._folder.damaged or {}).get(name, "")

    def examine(self, instant: Instant) -> str:
        """Read the files of an instant; return what is wrong with one, or nothing.

        Of a completed one that is the completed file, else the plan, and a profile that is not empty.
        """
        names = [instant.file_name]
        if not instant.completed:
            names = list(filter(None, (instant.requested_file, instant.inflight_file)))
        faults = {name: self._examined(instant, name) for name in names}
        return "; ".join(f"{name} {fault}" for name, fault in faults.items() if fault)

    def _examined(self, instant: Instant, name: str) -> str:
        if name == instant.file_name and instant.completed and instant.is_write:
            self.commit(instant)
            return self.fault(name)
        content = self._folder.read(f"{self._timeline_folder}/{name}")
        if content is None:
            return ""
        if not content:
            is_plan = name == instant.requested_file and instant.requested_action in _PLANNED
            return _EMPTY if instant.completed or is_plan else ""
        self._decoded(name, content, read_record)
        return self.fault(name)

    def _decoded(self, name: str, content: Content, decode: Callable[[Any], _T]) -> _T | None:
        try:
            return decode(content)
        except Exception as error:
            what = f"cannot be decoded: {error}" if content else _EMPTY
            if self._folder.damaged is not None:
                self._folder.damaged[name] = what
                return None
            raise MetadataCorruptError(
                f"{self._folder.path}/{self._timeline_folder}/{name} {what}",
                remedy="read again; if the error stays, the file was damaged after Hudi wrote it",
            ) from error
