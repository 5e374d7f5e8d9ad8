"""What the pages cost Airflow's API server, and the storage: ``python -m tests.bench.pages``.

A real Airflow on PostgreSQL knows 50 tables in a real S3 server. Each has four pending writers, copies
of one that real Hudi wrote, and each writer a request in a real ZooKeeper. First the requests to the
bucket are counted by which one look at all tables reads them. Then ten clients ask for pages again every
ten seconds, as ``page.js`` does: five for that of all tables, five for that of one. Windows with them
and without them take turns; ``/api/v2/dags`` is timed in both. ``CHECK=1`` makes it a test, ``SMOKE=1``
short.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, product
from math import inf
from pathlib import Path
from urllib.parse import parse_qs

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable
from tests.bench.harness import Goal, conclude
from tests.bench.pending_tables import PendingTables
from tests.faulty_s3 import faulty_store
from tests.pages.client import REFRESH_S, Client, p95, slower, viewers
from tests.pages.rig import LOCK, running
from tests.support.faulty_proxy import FaultyProxy
from tests.support.faulty_proxy import Request as StoreRequest
from tests.support.stores import BUCKET, STORE_CONN_ID, Lake

SMOKE = os.environ.get("SMOKE") == "1"
TABLES, WRITERS, CLIENTS = 50, 4, 10
WINDOW_S, ROUNDS = 20.0, 3 if SMOKE else 12
QUIET_S, MOST_LOOK_S = 3.0, 120.0
REFRESHES = 2 if SMOKE else 5
MOST_RATIO, MOST_FIRST, MOST_LATER = 1.5, 31, 23
LOOKED_AT = ["/hudi/" if number % 2 else f"/hudi/t/t{number}/" for number in range(CLIENTS)]


def examination(proxy: FaultyProxy, table: HudiTable) -> int:
    """Return the requests to the bucket by which a table is examined."""
    proxy.counted()
    examine(table)
    return sum(one.method == "GET" for one in proxy.counted())


def look_once(client: Client, proxy: FaultyProxy, page: str, names: Iterable[str]) -> Counter[str]:
    """Return the requests to the bucket by table that one look at a page causes."""
    proxy.counted()
    client.get(page)
    seen, end_s, quiet_s = Counter[str](), time.monotonic() + MOST_LOOK_S, inf
    while time.monotonic() < min(quiet_s, end_s):
        if found := [one for one in proxy.counted() if one.method == "GET"]:  # writers put heartbeats
            seen.update(map(table_of, found))
            quiet_s = time.monotonic() + QUIET_S if seen.keys() >= set(names) else inf
        time.sleep(0.1)
    return seen


def table_of(request: StoreRequest) -> str:
    """Return the name of the table that a request is about."""
    prefix = parse_qs(request.query).get("prefix", [""])[0]
    key = prefix if request.is_listing else request.path.removeprefix(f"/{BUCKET}/")
    return key.partition("/")[0]


def count(
    client: Client, proxy: FaultyProxy, page: str, names: Sequence[str], examined: int = 0
) -> list[Goal]:
    """Count the requests to the bucket by which looks at a page read its tables.

    :param examined: those of the first look that examine the table for findings.
    """
    looks = []
    for number in range(1 + REFRESHES):
        look = look_once(client, proxy, page, names)
        least, most = min(look[one] for one in names), max(look.values())
        print(
            f"{page}, look {number}: {least} to {most} requests a table, {look.total()} in all",
            flush=True,
        )
        looks.append(look)
        time.sleep(REFRESH_S)
    first, later = max(looks[0].values()) - examined, max(max(one.values()) for one in looks[1:])
    return [
        Goal(f"{page}: requests a table, first look", first, at_most=MOST_FIRST, unit=""),
        Goal(f"{page}: requests a table, later looks", later, at_most=MOST_LATER, unit=""),
    ]


def fill_queue(stack: EmbeddedStack, tables: Mapping[str, str]) -> None:
    """Queue a request of each writer."""
    os.environ[f"AIRFLOW_CONN_{LOCK.upper()}"] = json.dumps(stack.lock_connection)
    queue = lock_hook(LOCK).leases()
    try:
        for number, (name, path) in product(range(WRITERS), tables.items()):
            owner = Owner(("load_trips", f"run{number}", name))
            queue.request(Request(f"{name}x{number}", owner, (Scope.of(path, None),), 3_600_000))
    finally:
        queue.close()


def show(what: str, took_s: Sequence[float]) -> None:
    """Print the times of requests."""
    p50_ms, p95_ms = statistics.median(took_s) * 1000, p95(took_s) * 1000
    print(f"{what}: {len(took_s)} requests, p50 {p50_ms:.0f} ms, p95 {p95_ms:.0f} ms", flush=True)


def measure(client: Client, proxy: FaultyProxy, tables: PendingTables) -> list[Goal]:
    """Count requests, then time Airflow's own API beside viewers and without them.

    The viewers' first looks, which find nothing recent, are before their windows.
    """
    *_, last = names = list(tables.paths)
    examined = examination(proxy, tables.open(last))
    print(f"an examination for findings: {examined} requests", flush=True)
    counted = [
        *count(client, proxy, "/hudi/", names),
        *count(client, proxy, f"/hudi/t/{last}/", [last], examined),
    ]
    alone, beside, looks = list[list[float]](), list[list[float]](), list[float]()
    for _ in range(ROUNDS):
        time.sleep(REFRESH_S)
        alone.append(client.probe(WINDOW_S))
        with viewers(client, LOOKED_AT) as pages:
            time.sleep(REFRESH_S)
            beside.append(client.probe(WINDOW_S))
        looks += pages
    show("/api/v2/dags alone", list(chain(*alone)))
    show(f"/api/v2/dags beside {CLIENTS} viewers", list(chain(*beside)))
    show("pages", looks)
    return [
        *counted,
        Goal("p95 of /api/v2/dags beside viewers / alone", slower(alone, beside), at_most=MOST_RATIO),
    ]


def main() -> int:
    """Run it; return 1 if a goal is missed and ``CHECK`` is set."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench_pages_")))
        store, proxy = stack.enter_context(faulty_store(folder / "store", seed=7))
        services = stack.enter_context(EmbeddedStack(folder / "stack"))
        tables = stack.enter_context(PendingTables(Lake(folder / "lake", store), TABLES, WRITERS))
        named = [
            {"table": path, "key": name, "lock_conn_id": LOCK, "storage_conn_id": STORE_CONN_ID}
            for name, path in tables.paths.items()
        ]
        settings = {"AIRFLOW__HUDI_OCC__UI_TABLES": json.dumps(named)}
        airflow = stack.enter_context(running(folder / "airflow", services, "simple", settings))
        airflow.add_connection(STORE_CONN_ID, **store.connection)
        fill_queue(services, tables.paths)
        return conclude(measure(Client(airflow.url, airflow.token("admin")), proxy, tables))


if __name__ == "__main__":
    sys.exit(main())
