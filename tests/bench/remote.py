"""What following remote drivers costs a triggerer: ``python -m tests.bench.remote``.

The drivers are applications of a real YARN, each a small container that writes a line from time to
time. Each has a write with a live heartbeat in one of twenty tables, and a lease in a real
ZooKeeper. Two real triggerers have the same tasks in their databases: one follows the drivers, one
has as many triggers that do nothing. Both are measured at the same time, by the CPU time of their
processes. ``CHECK=1`` makes it a test.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.embedded.yarn import EmbeddedYarn
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.submitters.yarn.resource_manager import ResourceManager
from airflow_occ_provider.submitters.yarn.submission_conf import COMMON_TAG, identity_tag
from tests.bench.beating import Beating
from tests.bench.harness import Goal, conclude
from tests.bench.remote_load import LOCK_CONN_ID, RemoteLoad
from tests.bench.triggerers import Home, Triggerer, Window, allow_open_files, wait_until
from tests.bench.watchers import NODE_MANAGER, RESOURCE_MANAGER, IdleDriverTrigger
from tests.yarn_script import call

DAGS = Path(__file__).parent / "remote_dags"
MEMORY_MB = 128  # of a container, as far as YARN counts
ROUNDS, WINDOW_S, SETTLE_S, PERIOD_S = 3, 60.0, 20.0, 10.0
CLAIM_TTL_MS = 3_600_000
MOST_PERCENT = 10
IDLE, OURS = "triggers that do nothing", "ours"
SCRIPT = """
echo '26/11/23 10:00:00 INFO ActiveTimelineV2: Creating a new instant [==>'$1'__commit__REQUESTED]' >&2
while true; do sleep 10; echo "26/11/23 10:00:00 INFO TaskSetManager: a line of a job's log" >&2; done
"""


def yarn_settings(drivers: int) -> dict[str, object]:
    """Return the settings of a YARN in which all drivers run at once."""
    return {
        "yarn.nodemanager.resource.memory-mb": MEMORY_MB * (drivers + 8),
        "yarn.nodemanager.resource.cpu-vcores": drivers + 8,
        "yarn.am.liveness-monitor.expiry-interval-ms": 7_200_000,  # no script is a client of YARN
        "yarn.nodemanager.log-container-debug-info.enabled": "false",
    }


def submit(yarn: EmbeddedYarn, script: Path, instant: str, number: int) -> Handle:
    """Submit one driver, through the REST interface."""
    address = yarn.resource_manager
    name = json.loads(call(address, "apps/new-application", {}))["application-id"]
    command = f"sh {script} {instant} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"
    application = {
        "application-id": name,
        "application-name": f"driver {number}",
        "am-container-spec": {"commands": {"command": command}},
        "max-app-attempts": 1,
        "resource": {"memory": MEMORY_MB, "vCores": 1},
        "application-tags": {"tag": [COMMON_TAG, identity_tag(f"driver-{number}")]},
    }
    call(address, "apps", application)
    facts = {"key": f"driver-{number}", "application": name, "resource_managers": [address]}
    return Handle("yarn", f"YARN {name}", facts)


def run_drivers(yarn: EmbeddedYarn, load: RemoteLoad, folder: Path) -> list[dict[str, Any]]:
    """Start all drivers with their leases; return the arguments of the triggers that follow them."""
    (script := folder / "driver.sh").write_text(SCRIPT)
    triggers = []
    hook = lock_hook(LOCK_CONN_ID)
    terms = hook.terms()
    with closing(hook.leases()) as leases:
        for number, (table, instant) in enumerate(load.writes()):
            driver = submit(yarn, script, instant, number)
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
                    "driver": driver.to_json(),
                    "table": table,
                    "interval_ms": load.lake.interval_ms,
                    "tolerable_misses": load.lake.misses,
                }
            )
    manager = ResourceManager([yarn.resource_manager])

    def running() -> bool:
        return sum(one.container is not None for one in manager.running(COMMON_TAG)) == load.drivers

    took_s = wait_until(running, "the drivers")
    print(f"\n{load.drivers} applications have a container in YARN, after {took_s:.0f} s", flush=True)
    return triggers


def show(windows: Mapping[str, Sequence[Window]], drivers: int) -> None:
    head = "".join(f"{text:>13}" for text in ("% of a core", "lag p50", "lag p99"))
    print(f"\nTriggerers with {drivers} triggers\n  {'':<32}{head}   requests in {PERIOD_S:g} s")
    for name, taken in windows.items():
        for window in taken:
            row = (
                f"{100 * window.cores:>13.2f}{window.lag_ms(50):>10.1f} ms{window.lag_ms(99):>10.1f} ms"
            )
            print(f"  {name:<32}{row}   {requests(window)}")


def requests(window: Window) -> dict[str, float]:
    """Return the requests in a period, by what they go to."""
    to_yarn = {name: window.listings[name] for name in (RESOURCE_MANAGER, NODE_MANAGER)}
    found = {**to_yarn, "tables": sum(window.listings.values()) - sum(to_yarn.values())}
    return {name: round(count * PERIOD_S / window.seconds, 1) for name, count in found.items()}


def compare(windows: Mapping[str, Sequence[Window]]) -> list[Goal]:
    pairs = list(zip(windows[OURS], windows[IDLE], strict=True))
    above = [100 * (ours.cores - idle.cores) for ours, idle in pairs]
    cores = {name: statistics.median(one.cores for one in taken) for name, taken in windows.items()}
    lag_ms = statistics.median(one.lag_ms(99) for one in windows[OURS])
    most = max(requests(one)[RESOURCE_MANAGER] for one in windows[OURS])
    return [
        Goal("above idle: share of a core, median", statistics.median(above), None, unit="%"),
        Goal("above idle: share of a core, largest", max(above), at_most=MOST_PERCENT, unit="%"),
        Goal("doing nothing: share of a core", 100 * cores[IDLE], unit="%"),
        Goal("requests to the ResourceManager in a period", most, at_most=3, unit=""),
        Goal("event loop's lag, p99", lag_ms, at_most=50, unit="ms"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drivers", type=int, default=200)
    drivers = parser.parse_args().drivers
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        allow_open_files(4096)
        zookeeper = stack.enter_context(EmbeddedZookeeper(folder / "zookeeper"))
        load = RemoteLoad(str(folder / "lake"), zookeeper.hosts, drivers)
        os.environ.update(load.environment())
        load.lake.make_tables()
        stack.enter_context(Beating(load.lake))
        yarn = stack.enter_context(EmbeddedYarn(folder / "yarn", yarn_settings(drivers)))
        load.keep(run_drivers(yarn, load, folder))
        ours = Home.make(folder / "ours", load, DAGS)
        ours.defer()
        idle_path = f"{IdleDriverTrigger.__module__}.{IdleDriverTrigger.__qualname__}"
        idle = ours.copy(folder / "idle", idle_path)
        homes = ((IDLE, idle), (OURS, ours))
        triggerers = {name: stack.enter_context(Triggerer(home)) for name, home in homes}
        for name, triggerer in triggerers.items():
            triggerer.wait()
            print(f"  {name:<32}all run, {triggerer.memory_mb():.0f} MB", flush=True)
        windows: dict[str, list[Window]] = {name: [] for name in triggerers}
        time.sleep(SETTLE_S)
        for _ in range(ROUNDS):
            ends = {name: triggerer.measure() for name, triggerer in triggerers.items()}
            time.sleep(WINDOW_S)
            for name, end in ends.items():
                windows[name].append(end())
        show(windows, drivers)
        return conclude(compare(windows))


if __name__ == "__main__":
    sys.exit(main())
