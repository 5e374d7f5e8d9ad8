"""The tables that pairs start from: real Hudi makes each once, then it is copied."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.differential.pairs import BATCHES, PARTITIONS, Template, Write
from tests.differential.writes import batch_rows, run_service, save, table_options


class Templates:
    """Makes tables on demand and hands out copies of them.

    :param spark: the session.
    :param hudi: the release of Hudi.
    :param folder: where they are kept.
    """

    def __init__(self, spark: Any, hudi: str, folder: Path) -> None:
        self._spark = spark
        self._hudi = hudi
        self._folder = folder
        self._made: dict[Template, Path] = {}
        self._lock = threading.Lock()

    def copy(self, template: Template, target: Path) -> None:
        """Copy to ``target``, file times included: they are version 6's completion times."""
        with self._lock:
            if template not in self._made:
                table = self._folder / str(len(self._made))
                shutil.rmtree(table, ignore_errors=True)
                for step in self._steps(template, table):
                    step()
                self._made[template] = table
        shutil.copytree(self._made[template], target)

    def _steps(self, template: Template, table: Path) -> Iterator[Callable[[], None]]:
        options = {**table_options(template), "hoodie.parquet.small.file.limit": "0"}

        insert = "upsert" if template.bucket else "insert"  # 0.15 inserts beside an existing bucket

        def write(operation: str, *groups: tuple[str, str]) -> Callable[[], None]:
            return lambda: save(self._spark, table, operation, batch_rows(groups, 1), options)

        def serve(service: str, *groups: tuple[str, str]) -> Callable[[], None]:
            work = Write(service, groups, ())
            return lambda: run_service(self._spark, self._hudi, table, work, options)

        for batch in BATCHES:
            yield write(insert, *((partition, batch) for partition in PARTITIONS))
        yield write("upsert", ("p0", "b0"), ("p1", "b0"))
        if template.history == "clustered":
            yield serve("clustering", ("p0", "b0"))
        if template.history == "compacted":
            yield serve("compaction")
            yield write("upsert", ("p0", "b1"), ("p2", "b0"))
        if template.history == "replaced":
            yield write("insert_overwrite", ("p1", "b0"))
            yield write(insert, ("p1", "b1"))
            yield write("delete_partition", ("p2", "b0"))
            yield write(insert, ("p2", "b0"), ("p2", "b1"))
