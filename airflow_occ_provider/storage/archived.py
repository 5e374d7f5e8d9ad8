"""The archived instants of a table, in the format of its layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.storage.archive import Archive
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.history import Contents, History

_T = TypeVar("_T")


class ArchivedInstants:
    """The archived instants of a table, listed once.

    Each method raises ``TableUnreadableError`` if the storage cannot be read.
    """

    def __init__(self, folder: TableFolder, config: TableConfig) -> None:
        self._folder, self._name = folder, config.history_folder
        self._archive = Archive(folder, self._name) if config.layout_version == 1 else None
        self._of_one_file: dict[Instant, Contents] = {}

    def exist(self) -> bool:
        """Whether instants were archived."""
        names = self._folder.listing(self._name).names
        return any(name.endswith(".parquet") or ".archive." in name for name in names)

    def instants(self, after_ms: int | None = None) -> tuple[Instant, ...]:
        """Return the archived instants, oldest first.

        :param after_ms: epoch milliseconds; instants archived before may be left out. Default: all.
        :raises HistoryUnreadableError: for a history of layout 2 without pyarrow.
        """
        return self._archive.instants(after_ms) if self._archive else self._instants

    def contents(self, instant: Instant) -> Contents:
        """Return the contents of the files of one archived instant.

        :raises HistoryUnreadableError: for a history of layout 2 without pyarrow.
        """
        nothing = Contents(None, None)
        if self._archive:
            return self._archive.contents([instant]).get(instant, nothing)
        if instant not in self._of_one_file:
            of_same_file = [one for one in self._instants if one.file_name == instant.file_name]
            self._of_one_file = self._ask(lambda history: history.contents(of_same_file)) or {}
        return self._of_one_file.get(instant, nothing)

    @cached_property
    def _instants(self) -> tuple[Instant, ...]:
        return self._ask(lambda history: history.instants()) or ()

    def _ask(self, read: Callable[[History], _T]) -> _T | None:
        file_system = self._folder.file_system
        return self._folder.ask(self._name, lambda path: read(History(file_system, path)))
