"""``python -m tests.pages.outages``: the pages while what they read is away.

One table is in a real S3 server, one on the local disk, their queue in a real ZooKeeper. ZooKeeper is
stopped five times, then the store is frozen five times for a minute, then one of two API servers is
restarted. The exit code is 0 if the pages said so and recovered, and Airflow's own API did not become
slower meanwhile.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.process import Server
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.bench.pending_tables import PendingTables
from tests.faulty_s3 import faulty_store
from tests.pages.browser import chromium, sign_in
from tests.pages.client import Client, slower, viewers
from tests.pages.rig import LOCK, SignedInAirflow, running, wait_for
from tests.support.observed import processes_in
from tests.support.stores import STORE_CONN_ID, Lake
from tests.support.suspended import suspended

WINDOW_S, FROZEN_S, ROUNDS = 30.0, 60.0, 5
MOST_RATIO = 1.5
NEAR, FAR, ALL = "/hudi/t/near/", "/hudi/t/far/", "/hudi/"
ALL_ANSWERS = ("Storage: answers", "Lock service: answers")
NO_LOCK = ("Storage: answers", "Lock service: does not answer since")
NO_STORE = (
    "Storage: does not answer since",
    "Stale: the storage does not answer",
    "Lock service: answers",
)
UNREFRESHED = "#unrefreshed"


def main() -> int:
    """Run it; return 1 if something became slower."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airflow_occ_outages_")))
        store, _ = stack.enter_context(faulty_store(folder / "store", seed=7))
        services = stack.enter_context(EmbeddedStack(folder / "stack"))
        near, far = Lake(folder / "lake"), Lake(folder, store)
        tables = [stack.enter_context(PendingTables(one, 1, 2)).paths["t0"] for one in (near, far)]
        named = [
            {"table": tables[0], "key": "near", "lock_conn_id": LOCK},
            {"table": tables[1], "key": "far", "lock_conn_id": LOCK, "storage_conn_id": STORE_CONN_ID},
        ]
        settings = {
            "AIRFLOW__HUDI_OCC__UI_TABLES": json.dumps(named),
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),  # the same for both API servers
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
        }
        airflow = stack.enter_context(running(folder / "airflow", services, "simple", settings))
        airflow.add_connection(STORE_CONN_ID, **store.connection)
        client = Client(airflow.url, airflow.token("admin"))
        for page in (NEAR, FAR):
            client.wait_for(page, *ALL_ANSWERS)
        client.probe(WINDOW_S)  # the first requests are slower
        outages = {
            "ZooKeeper is stopped": lambda: without_zookeeper(client, services),
            "the store is frozen": lambda: with_a_frozen_store(client, folder / "store"),
        }
        ratios = {what: compared(client, away) for what, away in outages.items()}
        restart_one_of_two(airflow, client, folder)
    for what, ratio in ratios.items():
        print(f"p95 of /api/v2/dags while {what}: {ratio:.2f} x")
    return int(max(ratios.values()) > MOST_RATIO)


def compared(client: Client, away: Callable[[], list[float]]) -> float:
    """Return how many times slower Airflow's own API was while something was away."""
    usual, meanwhile = list[list[float]](), list[list[float]]()
    for _ in range(ROUNDS):
        usual.append(beside_viewers(client))
        meanwhile.append(away())
    return slower(usual, meanwhile)


def beside_viewers(client: Client) -> list[float]:
    """Return the seconds of requests to Airflow's own API while the pages are looked at."""
    with viewers(client, [NEAR, FAR, ALL]):
        return client.probe(WINDOW_S)


def without_zookeeper(client: Client, services: EmbeddedStack) -> list[float]:
    """Stop ZooKeeper for a window."""
    zookeeper = services.zookeeper
    zookeeper.stop()
    said(client, "ZooKeeper is stopped", {NEAR: NO_LOCK, FAR: NO_LOCK})
    took_s = beside_viewers(client)
    services.zookeeper = EmbeddedZookeeper(zookeeper.folder, zookeeper.port)
    services.zookeeper.start()
    said(client, "ZooKeeper is back", {NEAR: ALL_ANSWERS, FAR: ALL_ANSWERS})
    return took_s


def with_a_frozen_store(client: Client, store: Path) -> list[float]:
    """Freeze the object store for a minute or longer."""
    with suspended(*(one.pid for one in processes_in(store))):
        end_s = time.monotonic() + FROZEN_S
        said(client, "the store is frozen", {NEAR: ALL_ANSWERS, FAR: NO_STORE})
        took_s = beside_viewers(client)
        time.sleep(max(end_s - time.monotonic(), 0))
        said(client, "the store is still frozen", {NEAR: ALL_ANSWERS, FAR: NO_STORE})
    said(client, "the store goes on", {NEAR: ALL_ANSWERS, FAR: ALL_ANSWERS})
    return took_s


def said(client: Client, what: str, pages: dict[str, tuple[str, ...]]) -> None:
    """Wait until pages say something, and print after which time they did."""
    began_s = time.monotonic()
    for page, words in pages.items():
        client.wait_for(page, *words)
    print(f"{what}: said after {time.monotonic() - began_s:.1f} s", flush=True)


def restart_one_of_two(airflow: SignedInAirflow, first: Client, folder: Path) -> None:
    """Restart a second API server under a browser, while the first one goes on."""
    port = free_port()
    environment = {**airflow.environment, "AIRFLOW__API__PORT": str(port)}
    url = f"http://127.0.0.1:{port}"
    second = Client(url, airflow.token("admin"))

    def server(number: int) -> Server:
        command = [sys.executable, "-m", "airflow", "api-server"]
        return Server("api-server", command, environment, folder / f"second{number}.log")

    with chromium() as browser:
        screen = sign_in(browser, airflow, "admin", url=url)
        with server(0):
            wait_for("the second API server", second.answers)
            screen.open(f"/plugin/hudi{NEAR}")
            screen.wait_for(*ALL_ANSWERS)
        shown(lambda: screen.frame().is_visible(UNREFRESHED), "one of two API servers is stopped")
        first.wait_for(NEAR, *ALL_ANSWERS)
        with server(1):
            wait_for("the second API server", second.answers)
            shown(lambda: not screen.frame().is_visible(UNREFRESHED), "it is back")
            screen.wait_for(*ALL_ANSWERS)


def shown(happened: Callable[[], bool], what: str) -> None:
    """Wait until a browser shows something, and print after which time it did."""
    began_s = time.monotonic()
    wait_for(what, happened)
    print(f"{what}: the page said so after {time.monotonic() - began_s:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
