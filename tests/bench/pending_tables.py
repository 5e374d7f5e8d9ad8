"""Tables in an object store with pending writers, copied from one that real Hudi wrote."""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.stores import Lake

_ARCHIVE = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0" / "early_conflict.zip"
_MODEL, _OTHER = "20261121134203191", "20261121134204566"
_BEAT_S = 45.0
_THREADS = 8


class PendingTables:
    """Tables whose pending writers beat during a ``with`` block; all writers of one met in a file group.

    :param lake: where they are.
    :param number: of tables, named ``t0``, ``t1`` and so on.
    :param writers: of each table.
    """

    def __init__(self, lake: Lake, number: int, writers: int) -> None:
        self._lake = lake
        self.paths = {f"t{one}": lake.path(f"t{one}") for one in range(number)}
        self._instants = [str(int(_MODEL) + one) for one in range(writers)]
        self._files = lake.open(self.paths["t0"]).files.file_system
        self._is_local = not lake.store
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="heartbeats")

    def __enter__(self) -> Self:
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_THREADS) as pool:
            files = _files_of(unpack(_ARCHIVE, Path(folder)), self._instants)
            for path in self.paths.values():
                list(
                    pool.map(lambda one, path=path: self._put(f"{path}/{one[0]}", one[1]), files.items())
                )
        self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._beating.join()

    def open(self, name: str) -> HudiTable:
        """Return a table."""
        return self._lake.open(self.paths[name])

    def _put(self, path: str, content: bytes) -> None:
        if self._is_local:  # a store has no folders
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._files.pipe_file(path, content)

    def _beat(self) -> None:
        while True:
            for path in self.paths.values():
                for instant in self._instants:
                    self._put(f"{path}/.hoodie/.heartbeat/{instant}", b"")
            if self._ended.wait(_BEAT_S):
                return


def _files_of(table: Path, instants: list[str]) -> dict[str, bytes]:
    """Return the content of a table's files by name; each instant has those of the model."""
    found = {}
    for file in table.rglob("*"):
        name = file.relative_to(table).as_posix()
        if not file.is_file() or _OTHER in name:
            continue
        for instant in instants if _MODEL in name else [""]:
            found[name.replace(_MODEL, instant) if instant else name] = file.read_bytes()
    return found
