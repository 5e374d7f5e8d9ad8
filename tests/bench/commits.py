"""What watching commits costs a triggerer: ``python -m tests.bench.commits``.

Real triggerers, each with a thousand asset watchers of its own metadata database, which real DAGs and
a real scheduler made: some that do nothing, ``HudiCommitTrigger``, and a control that lists its table
for itself. The tables are copies of one that real Hudi wrote, on the local disk. All triggerers run
at the same time, and are measured by the CPU time of their processes, so that a busy machine disturbs
all alike. ``CHECK=1`` makes it a test, ``SMOKE=1`` short.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from airflow_occ_provider.embedded.process import EmbeddedError, Server
from airflow_occ_provider.reading.new_commits import all_seen
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers.commit import HudiCommitTrigger
from tests.bench.commit_load import APART, SHARED, CommitLoad
from tests.bench.commit_watchers import (
    LISTED,
    WATCHING,
    CountedCommitTrigger,
    IdleCommitTrigger,
    LoneCommitTrigger,
)
from tests.bench.harness import Goal, conclude
from tests.bench.triggerers import Home, Triggerer, Window, allow_open_files, wait_until

DAGS = Path(__file__).parent / "commit_dags"
SMOKE = os.environ.get("SMOKE") == "1"
TABLES, SHARED_BY, PERIOD_S = (100, 10, 6.0) if SMOKE else (1000, 10, 30.0)
PERIODS = 4  # in 120 s hoodie.properties are read again
COMMITS = 20
MOST_PERCENT, MOST_LATE_S = 10, 5.0
IDLE = "watchers that do nothing"
OURS, LONE = "ours", "one coroutine per watcher"
OURS_SHARED, LONE_SHARED = (f"{name}, {SHARED_BY} per table" for name in (OURS, LONE))
ARMS: dict[str, tuple[type, str]] = {
    IDLE: (IdleCommitTrigger, APART),
    OURS: (CountedCommitTrigger, APART),
    LONE: (LoneCommitTrigger, APART),
    OURS_SHARED: (CountedCommitTrigger, SHARED),
    LONE_SHARED: (LoneCommitTrigger, SHARED),
}


def make_home(folder: Path, load: CommitLoad) -> Home:
    """Make an Airflow home in which each asset has its watcher, as Airflow makes them."""
    home, watchers = Home.make(folder, load, DAGS), 2 * load.triggers + 1
    command = [sys.executable, "-m", "airflow", "scheduler", "--skip-serve-logs"]
    with Server("scheduler", command, home.environment, folder / "scheduler.log"):
        wait_until(lambda: count(home, "asset_active") == watchers, "active assets")
    home.run("dags", "reserialize")  # only an active asset gets its watcher
    if count(home, "asset_watcher") != watchers:
        raise EmbeddedError(f"{count(home, 'asset_watcher')} of {watchers} watchers were made")
    return home


def copy_home(home: Home, folder: Path, trigger: type, group: str) -> Home:
    """Return a home with the watchers of one group, as another trigger."""
    copy = home.copy(folder, f"{trigger.__module__}.{trigger.__qualname__}")
    with closing(sqlite3.connect(folder / "airflow.db")) as database, database:
        of_others = "SELECT id FROM asset WHERE name NOT LIKE ? || '%' AND name != 'probe'"
        database.execute(f"DELETE FROM asset_watcher WHERE asset_id IN ({of_others})", (group,))
        database.execute("DELETE FROM trigger WHERE id NOT IN (SELECT trigger_id FROM asset_watcher)")
    return copy


def count(home: Home, table: str) -> int:
    with suppress(sqlite3.OperationalError):  # locked
        return int(home.ask(f"SELECT count(*) FROM {table}")[0][0])
    return 0


def make_homes(scratch: Path, load: CommitLoad) -> dict[str, Home]:
    home = make_home(scratch / "home", load)
    homes = {name: copy_home(home, scratch / str(n), *ARMS[name]) for n, name in enumerate(ARMS)}
    for name in (OURS, OURS_SHARED):
        keep_states(load, ARMS[name][1], homes[name].folder)
    return homes


def keep_states(load: CommitLoad, group: str, folder: Path) -> None:
    """Store what the watchers have seen, as a triggerer that ran before has left it.

    Airflow's triggerer (3.3.2) takes two of its rounds for each request of a trigger. A watcher makes
    one request as it starts, and a second one in its first start.
    """
    seen = json.dumps(all_seen(HudiTable(str(load.table(0))).snapshot()).to_json())
    keys = ((HudiCommitTrigger(table=str(table))._key, name) for name, table in load.watched(group))
    with closing(sqlite3.connect(folder / "airflow.db")) as database, database:
        database.executemany(
            "INSERT INTO asset_state_store (asset_id, key, value, updated_at) "
            "SELECT id, ?, ?, CURRENT_TIMESTAMP FROM asset WHERE name = ?",
            [(key, seen, name) for key, name in keys],
        )


def start(stack: ExitStack, homes: Mapping[str, Home]) -> dict[str, Triggerer]:
    """Start the triggerers; return once all watchers look."""
    begun_s = time.monotonic()
    triggerers = {name: stack.enter_context(Triggerer(home)) for name, home in homes.items()}
    for name, one in triggerers.items():
        wait_for_watchers(name, one)
        spent = f"{time.monotonic() - begun_s:.0f} s, {one.cpu_s():.0f} CPU s, {one.memory_mb():.0f} MB"
        print(f"  {name:<44}all watch after {spent}", flush=True)
    time.sleep(1.5 * PERIOD_S)
    return triggerers


def wait_for_watchers(name: str, triggerer: Triggerer) -> None:
    wait_until(lambda: triggerer.counted(WATCHING) >= TABLES, f"watchers of {name}")


def watch(triggerers: Mapping[str, Triggerer]) -> dict[str, list[Window]]:
    windows: dict[str, list[Window]] = {name: [] for name in triggerers}
    for _ in range(PERIODS):
        ends = {name: triggerer.measure() for name, triggerer in triggerers.items()}
        time.sleep(PERIOD_S)
        for name, end in ends.items():
            windows[name].append(end())
    return windows


def show(load: CommitLoad, windows: Mapping[str, Sequence[Window]]) -> None:
    columns = ("% of a core", "above idle", "x ours", "lag p50", "lag p99", "listings")
    head = "".join(f"{text:>12}" for text in columns)
    print(
        f"\nTriggerers with {load.triggers:,} watchers, a period of {load.period_s:g} s\n{'':<40}{head}"
    )
    for name, taken in windows.items():
        extra, ours = above(windows, name), above(windows, OURS if name in (OURS, LONE) else OURS_SHARED)
        ratio = "" if name == IDLE else f"{extra / ours:.1f}"
        lags = "".join(f"{lag_ms(taken, percent):>9.1f} ms" for percent in (50, 99))
        shown = f"{cores(taken):>12.1f}{extra:>12.1f}{ratio:>12}{lags}{listings(taken):>12.1f}"
        print(f"  {name:<38}{shown}   {', '.join(f'{100 * one.cores:.1f}' for one in taken)}")


def cores(windows: Sequence[Window]) -> float:
    """Return the share of a core in percent, over all periods."""
    return 100 * statistics.fmean(one.cores for one in windows)


def above(windows: Mapping[str, Sequence[Window]], name: str) -> float:
    return cores(windows[name]) - cores(windows[IDLE])


def lag_ms(windows: Sequence[Window], percent: int) -> float:
    return statistics.median(one.lag_ms(percent) for one in windows)


def listings(windows: Sequence[Window]) -> float:
    """Return the listings of all tables in a period."""
    seconds = sum(one.seconds for one in windows)
    return sum(one.listings[LISTED] for one in windows) * PERIOD_S / seconds


def compare(load: CommitLoad, windows: Mapping[str, Sequence[Window]]) -> list[Goal]:
    goals = [
        Goal(
            f"{load.triggers:,} tables, above idle: ours", above(windows, OURS), MOST_PERCENT, unit="%"
        ),
        Goal(f"{load.triggers:,} tables, above idle: {LONE}", above(windows, LONE), unit="%"),
        Goal(f"above idle: {OURS_SHARED}", above(windows, OURS_SHARED), unit="%"),
        Goal(f"above idle: {LONE_SHARED}", above(windows, LONE_SHARED), unit="%"),
        Goal("doing nothing: share of a core", cores(windows[IDLE]), unit="%"),
    ]
    for name, tables in ((OURS, load.lake_tables), (OURS_SHARED, load.shared_tables)):
        text = f"listings of a table in a period: {name}"
        goals.append(Goal(text, listings(windows[name]) / tables, at_most=1.1, unit=""))
    return goals


def bench_events(load: CommitLoad, triggerers: Mapping[str, Triggerer]) -> list[Goal]:
    """Complete commits, and see when the metadata databases have the asset events."""
    first, step = load.shared_tables // 2, load.lake_tables // COMMITS
    completed_s = {load.table(number): load.commit(number) for number in range(first, TABLES, step)}
    goals = []
    for name, group in ((OURS, APART), (OURS_SHARED, SHARED)):
        home, tables = triggerers[name].home, dict(load.watched(group))
        expected = sum(table in completed_s for table in tables.values())
        wait_for_events(home, expected)
        late_s = [at_s - completed_s[tables[asset]] for asset, at_s in events(home)]
        longest_s = max(late_s, default=inf)
        goals += [
            Goal(f"commit to event, median: {name}", statistics.median(late_s or [inf]), unit="s"),
            Goal(f"commit to event, longest: {name}", longest_s, PERIOD_S + MOST_LATE_S, unit="s"),
            Goal(f"events too few or too many of {expected}", abs(len(late_s) - expected), 0, unit=""),
        ]
    return goals


def wait_for_events(home: Home, number: int) -> None:
    with suppress(EmbeddedError):  # the goals show what is missing
        wait_until(lambda: count(home, "asset_event") >= number, "events")


def events(home: Home) -> list[tuple[str, float]]:
    """Return the asset of each event, and when it was recorded."""
    rows = home.ask("SELECT asset.name, timestamp FROM asset_event JOIN asset ON asset.id = asset_id")
    return [(name, datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()) for name, at in rows]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, ExitStack() as stack:
        load = CommitLoad(str(Path(scratch) / "tables"), TABLES, SHARED_BY, PERIOD_S)
        allow_open_files(8 * load.triggers + 1000)
        load.make_tables()
        triggerers = start(stack, make_homes(Path(scratch), load))
        windows = watch(triggerers)
        show(load, windows)
        goals = [*compare(load, windows), *bench_events(load, triggerers)]
    return conclude(goals)


if __name__ == "__main__":
    sys.exit(main())
