"""A load of watched tables: copies of a table of real Hudi, and their watchers."""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

APART, SHARED = "apart", "shared"
_VARIABLE = "BENCH_COMMITS"
_GOLDEN = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0" / "operations.zip"
_INSTANTS = 30  # in each active timeline
_FIRST_ADDED = 20270101000000000


@dataclass(frozen=True)
class CommitLoad:
    """Tables whose commits are watched, each watcher by an asset of its own.

    :param root: folder of the tables.
    :param lake_tables: how many, and watchers in each group.
    :param shared_by: watchers of each table of the group ``shared``; in the group ``apart`` it is one.
    :param period_s: seconds between two looks of a watcher.
    :param tables: DAGs that are expected beside the probe's.
    """

    root: str
    lake_tables: int
    shared_by: int
    period_s: float
    tables: int = 2

    @property
    def triggers(self) -> int:
        return self.lake_tables

    @property
    def shared_tables(self) -> int:
        return self.lake_tables // self.shared_by

    def watched(self, group: str) -> Iterator[tuple[str, Path]]:
        """Yield the name of each asset of a group, and its table."""
        watchers = 1 if group == APART else self.shared_by
        for number in range(self.lake_tables // watchers):
            for watcher in range(watchers):
                yield f"{group}_{number}_{watcher}", self.table(number)

    def table(self, number: int) -> Path:
        return Path(self.root) / f"table_{number}"

    def environment(self) -> Mapping[str, str]:
        return {
            _VARIABLE: json.dumps(asdict(self)),
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "1",  # it also makes assets active
        }

    @classmethod
    def from_environment(cls) -> Self:
        return cls(**json.loads(os.environ[_VARIABLE]))

    def make_tables(self) -> None:
        """Make each table of hard links to the files of the first, but for its data files."""
        first = self.table(0)
        with zipfile.ZipFile(_GOLDEN) as golden:
            names = [one for one in golden.namelist() if one.startswith("table/.hoodie/")]
            golden.extractall(first, [one for one in names if "/metadata/" not in one])
        shutil.move(first / "table" / ".hoodie", first)
        (first / "table").rmdir()
        completed = {one.name.partition(".")[0] for one in _timeline(first).glob("[0-9]*_*")}
        for number in range(_INSTANTS - len(completed)):
            _add_commit(_timeline(first), _FIRST_ADDED + number)
        for number in range(1, self.lake_tables):
            shutil.copytree(first, self.table(number), copy_function=os.link)

    def commit(self, number: int) -> float:
        """Complete a commit in a table; return the epoch seconds."""
        _add_commit(_timeline(self.table(number)), _FIRST_ADDED + _INSTANTS)
        return time.time()


def _timeline(table: Path) -> Path:
    return table / ".hoodie" / "timeline"


def _add_commit(timeline: Path, instant: int) -> None:
    """Write the three files of a commit, with the content of the first one."""
    like = min(timeline.glob("*.commit"))
    old = like.name.partition("_")[0]
    for name in (f"{old}.commit.requested", f"{old}.inflight", like.name):
        ending = name.partition(".")[2]
        new = f"{instant}_{instant + 900}" if name == like.name else f"{instant}"
        shutil.copyfile(timeline / name, timeline / f"{new}.{ending}.part")
        (timeline / f"{new}.{ending}.part").rename(timeline / f"{new}.{ending}")
