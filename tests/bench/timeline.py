"""How fast a timeline is read: ``python -m tests.bench.timeline``; ``CHECK=1`` makes it a test.

Each read starts from a folder's path and looks at the time, action, state and completion time of
every instant. It is compared with the least work that a reader can do, with hudi-rs, pyarrow, and
a refresh.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import fsspec
from hudi import HudiTableBuilder, HudiTimeline
from pyarrow import parquet

from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.storage.archive import INSTANT_COLUMNS, History
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.listing import list_folder
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from tests.bench.harness import Competitor, Goal, conclude, medians, race, show
from tests.bench.tables import add_instant, instants, make_history, make_table

# Hudi's own pattern of a timeline file's name (1.2.0, InstantGeneratorV2).
_PARSE = re.compile(r"(\d+(_\d+)?)(\.\w+)(\.\D+)?").fullmatch
_LOCAL = fsspec.filesystem("file")


def touch(read: Iterable[Instant]) -> None:
    for instant in read:
        _ = instant.time, instant.action, instant.state, instant.completion_time


def listed(folder: Path) -> Sequence[str]:
    return list_folder(_LOCAL, str(folder)).names


def read_bare(folder: Path) -> list[tuple[str | None, ...]]:
    return [match.groups() for match in map(_PARSE, os.listdir(folder)) if match]  # noqa: PTH208


def read_and_forget(folder: Path) -> None:
    for match in map(_PARSE, os.listdir(folder)):  # noqa: PTH208
        _ = match and match.groups()


def read_with_times(folder: Path) -> list[tuple[tuple[str | None, ...], int]]:
    """Read each completed file's time of change too: in layout 1 that is its completion time."""
    found = []
    for name in os.listdir(folder):  # noqa: PTH208
        match = _PARSE(name)
        if match:
            done = match[4] is None and match[3] != ".inflight"
            written = os.stat(f"{folder}/{name}").st_mtime_ns if done else 0  # noqa: PTH116
            found.append((match.groups(), written))
    return found


def read_snapshot(folder: TableFolder, config: TableConfig) -> None:
    touch(Snapshot(folder, config, folder.listing(".hoodie"), lambda last: last).timeline)


def read_ours(folder: Path) -> None:
    touch(Timeline.from_file_names(listed(folder)))


def read_hudi_rs(timeline: HudiTimeline) -> None:
    for instant in timeline.get_completed_commits():
        _ = instant.timestamp, instant.action, instant.state, instant.epoch_mills


def read_columns(files: Sequence[Path]) -> None:
    for path in files:
        parquet.ParquetFile(path).read(INSTANT_COLUMNS).to_pydict()


def read_rows(files: Sequence[Path]) -> None:
    for path in files:
        parquet.ParquetFile(path).read(INSTANT_COLUMNS).to_pylist()


class Growing:
    """A table with one new commit since it was read; before each run it is another one."""

    def __init__(self, root: Path, timeline: Path, size: int) -> None:
        self.table, self.folder = HudiTable(str(root)), timeline
        self.snapshot = self.table.snapshot()
        self.read(self.snapshot)
        self.timeline = Timeline.from_file_names(listed(timeline))
        self._new = (new for new in instants(1_000_000, size) if new[2] == "commit")
        self._files: Sequence[Path] = ()

    def grow(self) -> None:
        self.shrink()
        self._files = add_instant(self.folder, *next(self._new))

    def shrink(self) -> None:
        for path in self._files:
            path.unlink()
        self._files = ()

    def cold(self) -> None:
        self.read(self.table.snapshot())

    def refresh(self) -> None:
        self.read(self.table.snapshot(self.snapshot))

    def refresh_timeline(self) -> None:
        touch(self.timeline.refreshed(listed(self.folder)))

    @staticmethod
    def read(snapshot: Snapshot) -> None:
        touch(snapshot.timeline)
        for instant in snapshot.timeline.completed_writes():
            snapshot.reader.commit(instant)


def bench_cold(root: Path, folder: Path, size: int, rounds: int) -> list[Goal]:
    rust = HudiTableBuilder.from_base_uri(str(root)).build().get_timeline()
    times = race(
        [
            Competitor("os.listdir, each name parsed by a compiled regex", partial(read_bare, folder)),
            Competitor("the same, but nothing is kept of it", partial(read_and_forget, folder)),
            Competitor("ours: list_folder, Timeline.from_file_names", partial(read_ours, folder)),
            # An advantage for hudi-rs: the table is open, and it shows only the completed commits.
            Competitor("hudi-rs: get_completed_commits", partial(read_hudi_rs, rust)),
        ],
        rounds,
    )
    show(f"Cold read of a timeline of {size:,} instants, {3 * size:,} files", times)
    bare, forgetful, ours, hudi_rs = medians(times).values()
    return [
        Goal(f"{size:,} instants: ours / bare listing and regex", ours / bare, at_most=1.6),
        Goal(f"{size:,} instants: ours / the same with nothing kept", ours / forgetful),
        Goal(f"{size:,} instants: hudi-rs / ours", hudi_rs / ours, at_least=3),
    ]


def bench_layout_1(root: Path, folder: Path, size: int, rounds: int) -> list[Goal]:
    table = HudiTable(str(root))
    ours = partial(read_snapshot, table.files, table.config())
    times = race(
        [
            Competitor("os.listdir and regex, no completion time", partial(read_bare, folder)),
            Competitor("the same, os.stat of each completed file", partial(read_with_times, folder)),
            Competitor("ours: TableFolder.listing, Snapshot", ours),
        ],
        rounds,
    )
    show(f"Cold read of layout 1, {size:,} instants, {3 * size:,} files", times)
    bare, timed, taken = medians(times).values()
    return [
        Goal(f"layout 1, {size:,} instants: ours / listing, regex, times", taken / timed, at_most=1.6),
        Goal(f"layout 1, {size:,} instants: ours / listing, regex alone", taken / bare),
    ]


def bench_refresh(root: Path, folder: Path, size: int, rounds: int) -> list[Goal]:
    table = Growing(root, folder, size)
    alone = race(
        [
            Competitor("timeline alone, cold", partial(read_ours, folder), table.grow),
            Competitor("timeline alone, Timeline.refreshed", table.refresh_timeline, table.grow),
        ],
        rounds,
    )
    whole = race(
        [
            Competitor("table with what each commit did, cold", table.cold, table.grow),
            Competitor("table with what each commit did, refreshed", table.refresh, table.grow),
        ],
        max(3, rounds // 5),
    )
    table.shrink()
    show(f"Refresh with one new instant beside {size:,}", {**alone, **whole})
    cold_timeline, refreshed_timeline = medians(alone).values()
    cold, refreshed = medians(whole).values()
    return [
        Goal(f"{size:,} instants: table, cold / refreshed", cold / refreshed, at_least=20),
        Goal(f"{size:,} instants: timeline alone, the same", cold_timeline / refreshed_timeline),
    ]


def bench_history(folder: Path, rounds: int) -> list[Goal]:
    files = make_history(folder)
    files_below = TableFolder("file", str(folder.parent), _LOCAL, 60)
    times = race(
        [
            # One Python object an entry, as ours; the columns alone are shown beside it.
            Competitor("pyarrow: the same columns, to_pylist", partial(read_rows, files)),
            Competitor("pyarrow: the same columns, to_pydict", partial(read_columns, files)),
            Competitor("ours: History.instants", lambda: History(files_below, folder.name).instants()),
        ],
        rounds,
    )
    show(f"10,000 entries of history, {len(files)} files", times)
    rows, columns, ours = medians(times).values()
    return [
        Goal("history: ours / pyarrow's rows", ours / rows, at_most=1.5),
        Goal("history: ours / pyarrow's columns", ours / columns),
    ]


def main() -> int:
    goals = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for size, rounds in ((1_000, 60), (10_000, 25)):
            root = Path(scratch) / f"table_{size}"
            folder = make_table(root, size)
            goals += bench_cold(root, folder, size, rounds)
            goals += bench_refresh(root, folder, size, rounds)
            older = Path(scratch) / f"layout_1_{size}"
            goals += bench_layout_1(older, make_table(older, size, layout=1), size, rounds)
        goals += bench_history(Path(scratch) / "history", rounds=25)
    return conclude(goals)


if __name__ == "__main__":
    sys.exit(main())
