"""What following remote drivers costs a triggerer: ``python -m tests.bench.remote``.

The drivers follow the contract of a folder each, on the local disk or in a bucket behind a real S3
server; they run no Spark. Each has a write with a live heartbeat in one of twenty tables, and a lease
in a real ZooKeeper. Real triggerers have as many tasks in their databases: two follow the drivers, one
has triggers that do nothing. The tables are on the disk for all, and their guards share the reads of
them; in a bucket those would cost more. The requests are those of the triggers to the drivers'
folders, and not the drivers' own. All are measured at the same time, by the CPU time of their processes.
``CHECK=1`` makes it a test.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from airflow_occ_provider.driver.contract import FACTS, LIFE
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from tests.bench.beating import Beating
from tests.bench.harness import Goal, conclude
from tests.bench.remote_load import LOCK_CONN_ID, RemoteLoad
from tests.bench.ticking import Ticking
from tests.bench.triggerers import Home, Triggerer, Window, allow_open_files
from tests.bench.watchers import IdleDriverTrigger

DAGS = Path(__file__).parent / "remote_dags"
BUCKET = "lake"
ROUNDS, WINDOW_S, SETTLE_S = 3, 60.0, 60.0
CLAIM_TTL_MS = 3_600_000
MOST_PERCENT = 10
IDLE, ON_DISK, IN_BUCKET = "that do nothing", "with folders on the disk", "with folders in a bucket"
FILES = {"": "folder listed", FACTS: "facts read", LIFE: "ticks answered"}


def follow(load: RemoteLoad) -> None:
    """Make the leases of a load's drivers, and the arguments of the triggers that follow them."""
    triggers = []
    hook = lock_hook(LOCK_CONN_ID)
    terms = hook.terms()
    with closing(hook.leases()) as leases:
        for number, (table, _) in enumerate(load.writes()):
            owner = Owner(("bench", f"run_{number}", "driver"))
            scope = Scope.of(table, None, Mode.SHARED)
            ticket = leases.request(Request(uuid.uuid4().hex, owner, (scope,), terms.ttl_ms))
            leases.renew(ticket, CLAIM_TTL_MS)  # until a triggerer runs
            triggers.append(
                {
                    "lock_conn_id": LOCK_CONN_ID,
                    "ticket": ticket.to_json(),
                    "ttl_ms": terms.ttl_ms,
                    "claim_ttl_ms": terms.claim_ttl_ms,
                    "driver": load.driver(number).to_json(),
                    "table": table,
                    "interval_ms": load.lake.interval_ms,
                    "tolerable_misses": load.lake.misses,
                }
            )
    load.keep(triggers)


def show(windows: Mapping[str, Sequence[Window]], drivers: int) -> None:
    head = "".join(f"{text:>13}" for text in ("% of a core", "lag p50", "lag p99"))
    print(f"\nTriggerers with {drivers} triggers\n  {'':<28}{head}   of a driver in a minute")
    for name, windows_of_name in windows.items():
        for window in windows_of_name:
            row = (
                f"{100 * window.cores:>13.2f}{window.lag_ms(50):>10.1f} ms{window.lag_ms(99):>10.1f} ms"
            )
            each = ", ".join(f"{what} {count:.1f}" for what, count in requests(window, drivers).items())
            print(f"  {name:<28}{row}   {each if name != IDLE else ''}")


def requests(window: Window, drivers: int) -> dict[str, float]:
    """Return the requests to a driver's folder in a minute, by their kind."""
    return {what: window.listings[name] * 60 / window.seconds / drivers for name, what in FILES.items()}


def compare(windows: Mapping[str, Sequence[Window]], drivers: int) -> list[Goal]:
    idle = [100 * window.cores for window in windows[IDLE]]
    goals = [Goal("doing nothing", statistics.median(idle), unit="%")]
    for name in (ON_DISK, IN_BUCKET):
        above = [
            100 * window.cores - percent for window, percent in zip(windows[name], idle, strict=True)
        ]
        lag_ms = statistics.median(window.lag_ms(99) for window in windows[name])
        most = max(sum(requests(window, drivers).values()) for window in windows[name])
        goals += [
            Goal(f"{name}: above idle, median", statistics.median(above), unit="%"),
            Goal(f"{name}: above idle, largest", max(above), at_most=MOST_PERCENT, unit="%"),
            Goal(f"{name}: requests of a driver in a minute", most, at_most=10, unit=""),
            Goal(f"{name}: event loop's lag, p99", lag_ms, at_most=50, unit="ms"),
        ]
    return goals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drivers", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    drivers: int = arguments.drivers
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        allow_open_files(4096)
        zookeeper = stack.enter_context(EmbeddedZookeeper(folder / "zookeeper"))
        store = stack.enter_context(EmbeddedS3proxy(folder / "store"))
        store.make_bucket(BUCKET)
        on_disk = RemoteLoad(str(folder / "disk"), zookeeper.hosts, f"file://{folder}/disk", {}, drivers)
        bucket = f"s3a://{BUCKET}/a"
        in_bucket = RemoteLoad(str(folder / "lake"), zookeeper.hosts, bucket, store.connection, drivers)
        homes = {}
        ticking = {}
        for name, load in ((ON_DISK, on_disk), (IN_BUCKET, in_bucket)):
            os.environ.update(load.environment())
            load.lake.make_tables()
            stack.enter_context(Beating(load.lake))
            ticking[name] = stack.enter_context(Ticking(load))
            follow(load)
            homes[name] = Home.make(folder / f"home_{len(homes)}", load, DAGS)
            homes[name].defer()
        idle_path = f"{IdleDriverTrigger.__module__}.{IdleDriverTrigger.__qualname__}"
        homes = {IDLE: homes[ON_DISK].copy(folder / "idle", idle_path), **homes}
        triggerers = {name: stack.enter_context(Triggerer(home)) for name, home in homes.items()}
        for name, triggerer in triggerers.items():
            triggerer.wait()
            print(f"  {name:<28}all run, {triggerer.memory_mb():.0f} MB", flush=True)
        for drivers_of in ticking.values():
            drivers_of.wait()
        windows: dict[str, list[Window]] = {name: [] for name in triggerers}
        time.sleep(SETTLE_S)
        for _ in range(arguments.rounds):
            ends = {name: triggerer.measure() for name, triggerer in triggerers.items()}
            time.sleep(WINDOW_S)
            for name, end in ends.items():
                windows[name].append(end())
        show(windows, drivers)
        for name, drivers_of in ticking.items():
            print(f"  {name}: {drivers_of.answered()} of {drivers} have an answer to a recent tick")
        return conclude(compare(windows, drivers))


if __name__ == "__main__":
    sys.exit(main())
