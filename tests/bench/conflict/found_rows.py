"""The rows that a run has left in its table: which are missing, and which are there twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.conflict.events import Event, Job
from tests.bench.conflict.job import own_keys, writer_of
from tests.bench.conflict.make_table import BASE
from tests.support.rows import current_files


@dataclass(slots=True)
class Found:
    """The rows of a table.

    :param keys: how often each key of a writer is there.
    :param others: number of the rows that were there before the writers.
    :param instants: commit times of each writer's rows.
    """

    keys: Counter[str] = field(default_factory=Counter)
    others: int = 0
    instants: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


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


def read_rows(table: Path) -> Found:
    """Read the current rows of a table."""
    found = Found()
    for path in current_files(table):
        rows = pq.read_table(path, columns=["id", "_hoodie_commit_time"])
        of_base = pc.starts_with(rows.column("id"), BASE)
        found.others += pc.sum(of_base).as_py() or 0
        for row in rows.filter(pc.invert(of_base)).to_pylist():
            found.keys[row["id"]] += 1
            found.instants[writer_of(row["id"])].add(row["_hoodie_commit_time"])
    return found
