"""The rows that a run has left in its table: which are missing, and which are there twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.conflict.events import Event, Job
from tests.bench.conflict.job import own_keys
from tests.bench.conflict.make_table import BASE
from tests.rows import current_files


def compare(found: Counter[str], jobs: Iterable[Job], events: Iterable[Event]) -> tuple[int, int]:
    """Return how many rows of committed writers are lost, and how many are doubled.

    :param found: how often each key of a writer is in the table.
    """
    done = {one.writer for one in events if one.committed}
    expected = {
        key
        for job in jobs
        if job.writer in done
        for p in job.partitions
        for key in own_keys(job.writer, p)
    }
    lost = sum(not found[key] for key in expected)
    return lost, sum(count - 1 for count in found.values() if count > 1)


def written_keys(table: Path) -> tuple[Counter[str], int]:
    """Return how often each key of a writer is in a table, and the number of its other rows."""
    counts: Counter[str] = Counter()
    others = 0
    for path in current_files(table):
        keys = pq.read_table(path, columns=["id"]).column("id")
        of_base = pc.starts_with(keys, BASE)
        others += pc.sum(of_base).as_py() or 0
        counts.update(keys.filter(pc.invert(of_base)).to_pylist())
    return counts, others
