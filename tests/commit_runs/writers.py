"""Writers of one real table in one Spark session, each commit with a row of its own."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from tests.differential.pairs import Template
from tests.differential.writes import save, table_options

_WRITERS = 2
_PAUSE_S = 2.0  # else all commits are made before the second triggerer runs
_LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"


class Writers:
    """Writers that make so many commits.

    :param spark: the session.
    :param table: the table, which need not exist.
    :param count: commits to make.
    """

    def __init__(self, spark: Any, table: Path, count: int) -> None:
        self._spark, self._table, self._count = spark, table, count
        template = Template(
            "COPY_ON_WRITE", bucket=False, history="plain", metadata_table=False, version=9
        )
        self._options = {
            **table_options(template),
            "hoodie.write.lock.provider": _LOCK,
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.archive.automatic": "true",
        }
        self._pool = ThreadPoolExecutor(_WRITERS, "writer")
        self._made = Counter[int]()

    def make_first(self) -> None:
        """Make the table, with the first commit."""
        self._write(_WRITERS, 1)

    def start(self) -> None:
        """Start them, for all further commits; they end by themselves."""
        left = self._count - 1
        counts = [left // _WRITERS + (writer < left % _WRITERS) for writer in range(_WRITERS)]
        self._running = [self._pool.submit(self._write, n, count) for n, count in enumerate(counts)]

    @property
    def made(self) -> int:
        """How many commits they have made."""
        return self._made.total()

    @property
    def have_ended(self) -> bool:
        """Whether all have made their commits.

        :raises Exception: that of a writer.
        """
        done, running = wait(self._running, timeout=0)
        for one in done:
            one.result()
        return not running

    def commits(self) -> list[str]:
        """Return the requested times of all commits, by the rows that they wrote."""
        rows = self._spark.read.format("hudi").load(str(self._table))
        found = rows.select("_hoodie_commit_time").distinct().collect()
        return sorted(row[0] for row in found)

    def _write(self, writer: int, count: int) -> None:
        for number in range(count):
            time.sleep(_PAUSE_S)
            save(self._spark, self._table, "insert", _rows(writer, number), self._options)
            self._made[writer] += 1


def _rows(writer: int, number: int) -> list[tuple[str, str, int]]:
    return [(f"w{writer}-{number}", f"p{writer}", number)]
