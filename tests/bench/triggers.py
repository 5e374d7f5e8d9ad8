"""What watching costs a triggerer: ``python -m tests.bench.triggers``; ``CHECK=1`` makes it a test.

Ten thousand tasks over a hundred tables, started from the trigger by a real scheduler. Two real
triggerers run them, each on its own copy of the metadata database: one with ``HudiHeartbeatTrigger``,
one with a trigger that does nothing, until finally one in ten of these polls for itself. They
alternate, so that a busy machine disturbs both alike: while one is measured, the other is paused.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from airflow_occ_provider.embedded.process import EmbeddedError
from tests.bench.beating import Beating
from tests.bench.harness import Goal, conclude
from tests.bench.load import FIRST_RUN, Load
from tests.bench.simulation import simulate
from tests.bench.triggerers import Home, Triggerer, Window, allow_open_files, wait_until
from tests.bench.watchers import ONE_IN, IdleTrigger

ROUNDS = 3
WINDOW_PERIODS, SETTLE_S = 3, 8.0
DEATHS = 10
SIMULATED = 100  # tables
SIMULATED_BEATS = 10_000  # of each
IDLE, OURS, LONELY = "a trigger that does nothing", "ours", f"one in {ONE_IN} polls for itself"


def class_path(trigger: type) -> str:
    return f"{trigger.__module__}.{trigger.__qualname__}"


def start(stack: ExitStack, scratch: Path, load: Load) -> dict[str, Triggerer]:
    """Start the triggerers, and pause each until it is measured."""
    ours = Home.make(scratch / "ours", load)
    took_s = ours.defer()
    print(f"\nA real scheduler started {load.triggers:,} tasks from the trigger in {took_s:.0f} s")
    idle = ours.copy(scratch / "idle", class_path(IdleTrigger))
    triggerers = {
        name: stack.enter_context(Triggerer(home)) for name, home in ((IDLE, idle), (OURS, ours))
    }
    begun_s = time.monotonic()
    for name, triggerer in triggerers.items():
        triggerer.wait()
        took_s, memory_mb = time.monotonic() - begun_s, triggerer.memory_mb()
        print(f"  {name:<44}all run after {took_s:.0f} s, {memory_mb:.0f} MB", flush=True)
    for triggerer in triggerers.values():
        triggerer.pause()
    return triggerers


def alternate(triggerers: Mapping[str, Triggerer], seconds: float) -> dict[str, list[Window]]:
    windows: dict[str, list[Window]] = {IDLE: [], OURS: [], LONELY: []}
    for number in range(ROUNDS):
        for name in sorted(triggerers, reverse=number % 2 == 1):
            windows[name].append(triggerers[name].watch(SETTLE_S, seconds))
    triggerers[IDLE].home.wake.touch()
    windows[LONELY].append(triggerers[IDLE].watch(SETTLE_S + seconds / WINDOW_PERIODS, seconds))
    return windows


def show(load: Load, windows: Mapping[str, Sequence[Window]]) -> None:
    head = "".join(f"{text:>12}" for text in ("% of a core", "lag p50", "lag p99", "listings"))
    print(f"\nTriggerers with {load.triggers:,} triggers over {load.tables} tables\n  {'':<44}{head}")
    for name, taken in windows.items():
        for window in taken:
            measured = (
                f"{100 * window.cores:>12.1f}{window.lag_ms(50):>9.1f} ms{window.lag_ms(99):>9.1f} ms"
            )
            print(f"  {name:<44}{measured}{listings(load, window):>12.2f}")


def listings(load: Load, window: Window) -> float:
    """Return the listings of a table in a period."""
    folders = (".hoodie/.heartbeat", ".hoodie/timeline")
    return sum(window.listings[name] for name in folders) * load.period_s / window.seconds / load.tables


def compare(load: Load, windows: Mapping[str, Sequence[Window]]) -> list[Goal]:
    cores = {name: statistics.median(one.cores for one in taken) for name, taken in windows.items()}
    lags = {name: statistics.median(one.lag_ms(99) for one in taken) for name, taken in windows.items()}
    polls = [listings(load, one) for one in windows[OURS]]
    alone = listings(load, windows[LONELY][0]) * ONE_IN
    # Of two windows that followed each other: the machine's other load changes over time.
    pairs = zip(windows[OURS], windows[IDLE], strict=True)
    above = statistics.median(ours.cores - idle.cores for ours, idle in pairs)
    lonely = (cores[LONELY] - cores[IDLE]) * ONE_IN
    return [
        Goal("ours, above doing nothing: share of a core", 100 * above, at_most=5, unit="%"),
        Goal("if each polls for itself, above doing nothing", 100 * lonely, unit="%"),
        Goal("doing nothing: share of a core", 100 * cores[IDLE], unit="%"),
        Goal("event loop's lag, p99: ours", lags[OURS], at_most=50, unit="ms"),
        Goal("event loop's lag, p99: doing nothing", lags[IDLE], unit="ms"),
        Goal(f"event loop's lag, p99: {LONELY}", lags[LONELY], unit="ms"),
        Goal("listings of a table in a period: ours", max(polls), at_most=1.1, unit=""),
        Goal("listings of a table, if each polls for itself", alone, unit=""),
    ]


def bench_deaths(triggerer: Triggerer, beating: Beating) -> list[Goal]:
    """Stop writers, and see when the metadata database has the event of each of their triggers."""
    load, home = triggerer.home.load, triggerer.home
    with triggerer.awake():
        expired_s = {
            f"table_{number}": beating.stop(number, next(load.instants())) + load.tolerance_s
            for number in range(0, load.tables, load.tables // DEATHS)
        }
        expected = len(expired_s) * (load.followers + load.table_watchers * load.writers)
        with suppress(EmbeddedError):  # the goals show what is missing
            wait_until(lambda: len(home.events()) >= expected, "events")
        time.sleep(1)  # for events that should not come
        events = home.events()
    run = f"{FIRST_RUN:%Y-%m-%d %H:%M:%S}"
    of_victims = (one for one in events if one.dag in expired_s)
    right = [one for one in of_victims if one.run == run or one.task.startswith("all")]
    late_s = [one.at_s - expired_s[one.dag] for one in right]
    print(f"\n{len(expired_s)} writers stopped, {len(right)} of {expected} events recorded")
    return [
        Goal("death recorded, after Hudi's tolerance: median", statistics.median(late_s), unit="s"),
        Goal("death recorded: longest", max(late_s), at_most=load.period_s + 1, unit="s"),
        Goal("death recorded: soonest", min(late_s), at_least=0, unit="s"),
        Goal("deaths not recorded", expected - len(right), at_most=0, unit=""),
        Goal("living writers reported dead", len(events) - len(right), at_most=0, unit=""),
    ]


def bench_simulated() -> list[Goal]:
    begun_s = time.monotonic()
    found = [simulate(seed, SIMULATED_BEATS, writers=50) for seed in range(SIMULATED)]
    took_s, beats = time.monotonic() - begun_s, sum(one.beats for one in found)
    reported, observations = sum(one.reported for one in found), sum(one.observations for one in found)
    print(
        f"\n{beats:,} beats simulated, {observations:,} observations, "
        f"{reported} deaths reported: {took_s:.0f} s"
    )
    overlooked = sum(one.overlooked for one in found)
    return [
        Goal("simulated: false deaths", sum(len(one.false) for one in found), at_most=0, unit=""),
        Goal("simulated: deaths overlooked", overlooked, at_most=0, unit=""),
    ]


def main() -> int:
    goals = bench_simulated()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, ExitStack() as stack:
        load = Load(str(Path(scratch) / "tables"))
        allow_open_files(load.triggers + 1000)
        load.make_tables()
        beating = stack.enter_context(Beating(load))
        triggerers = start(stack, Path(scratch), load)
        windows = alternate(triggerers, WINDOW_PERIODS * load.period_s)
        show(load, windows)
        goals = [*compare(load, windows), *bench_deaths(triggerers[OURS], beating), *goals]
    return conclude(goals)


if __name__ == "__main__":
    sys.exit(main())
