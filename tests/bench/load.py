"""A load: tables, their live writers, and how many triggers watch each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from tests.bench.tables import make_table

_VARIABLE = "BENCH_LOAD"
_COMPLETED = 60  # instants in each active timeline, as Hudi's archival leaves them
FIRST_RUN = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Load:
    """A load; writer n of a table began at the logical date of run n, by which its triggers find it.

    :param root: folder of the tables.
    :param tables: how many.
    :param writers: of each table, and runs of its DAG.
    :param followers: triggers that watch one writer.
    :param table_watchers: triggers in each run that watch all writers of the table.
    :param interval_ms: Hudi's heartbeat interval.
    :param misses: Hudi's tolerable misses.
    :param jitter: share of the interval by which a heartbeat may be early or late.
    """

    root: str
    tables: int = 100
    writers: int = 20
    followers: int = 4
    table_watchers: int = 1
    interval_ms: int = 60_000
    misses: int = 2
    jitter: float = 0.2

    @property
    def triggers(self) -> int:
        return self.tables * self.writers * (self.followers + self.table_watchers)

    @property
    def period_s(self) -> float:
        return self.interval_ms / 4000

    @property
    def tolerance_s(self) -> float:
        return self.interval_ms * self.misses / 1000

    def table(self, number: int) -> Path:
        return Path(self.root) / f"table_{number}"

    def instants(self) -> Iterator[str]:
        """Yield the requested times of one table's writers."""
        for run in range(self.writers):
            yield f"{FIRST_RUN + timedelta(hours=run):%Y%m%d%H%M%S}000"

    def heartbeat(self, table: int, instant: str) -> Path:
        return self.table(table) / ".hoodie" / ".heartbeat" / instant

    def environment(self) -> Mapping[str, str]:
        return {_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> Self:
        return cls(**json.loads(os.environ[_VARIABLE]))

    def make_tables(self) -> None:
        """Make each table: completed instants, and the pending ones of its writers."""
        for number in range(self.tables):
            timeline = make_table(self.table(number), _COMPLETED)
            (self.table(number) / ".hoodie" / ".heartbeat").mkdir()
            for instant in self.instants():
                (timeline / f"{instant}.commit.requested").touch()
                (timeline / f"{instant}.inflight").touch()
                self.heartbeat(number, instant).touch()
