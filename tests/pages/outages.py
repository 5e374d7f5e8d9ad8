"""``python -m tests.pages.outages``: the pages while what they read is away.

One table is in a real object store, one on the local disk, their queue in a real ZooKeeper. ZooKeeper
is stopped, then the store is frozen for a minute, then one of two API servers is restarted. The exit
code is 0 if the pages said so, recovered, and Airflow's own API did not become slower meanwhile.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from airflow_occ_provider.embedded.airflow import EmbeddedAirflow
from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.process import Server
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.bench.pages import ARCHIVE, DAGS, get, p95
from tests.golden.table_archive import unpack
from tests.pages.rig import wait_for
from tests.stores import BUCKET, STORE_CONN_ID, Lake

FROZEN_S = 60.0
MOST_RATIO = 2.0
LOCK = "hudi_lock_default"


class Pages:
    """Airflow's API and the pages, as one signed-in client gets them."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self._token = url, token

    def api_s(self) -> float:
        """Return the seconds of a request to Airflow's own API."""
        return get(f"{self.url}/api/v2/dags", self._token)[0]

    def text(self, key: str) -> str:
        """Return a table's page."""
        return get(f"{self.url}/hudi/t/{key}/", self._token)[1]

    def wait_for(self, key: str, *words: str) -> None:
        """Wait until a table's page has words."""
        wait_for(f"{key}: {words}", lambda: all(one in self.text(key) for one in words))


def main() -> int:
    """Run it; return 1 if something was slower than before."""
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_outages_"))
    try:
        with EmbeddedS3proxy(folder / "store") as store, EmbeddedStack(folder / "stack") as stack:
            store.make_bucket(BUCKET)
            lake = Lake(folder / "lake", store)
            local = unpack(ARCHIVE, folder / "local")
            _upload(lake, local, lake.path("far"))
            near = {"table": str(local), "key": "near", "lock_conn_id": LOCK}
            far = {"table": lake.path("far"), "key": "far", "lock_conn_id": LOCK}
            named = json.dumps([near, {**far, "storage_conn_id": STORE_CONN_ID}])
            settings = {"AIRFLOW__HUDI_OCC__UI_TABLES": named}
            with EmbeddedAirflow(folder / "airflow", DAGS, stack.environment, settings) as airflow:
                airflow.add_connection(LOCK, **stack.lock_connection)
                airflow.add_connection(STORE_CONN_ID, **lake.connections[STORE_CONN_ID])
                token = str(airflow._request("GET", "/auth/token")["access_token"])
                pages = Pages(airflow.url, token)
                for key in ("near", "far"):
                    pages.wait_for(key, "Storage: answers", "Lock service: answers")
                before_s = p95([pages.api_s() for _ in range(100)])
                during_s = {
                    "ZooKeeper is stopped": _without_zookeeper(pages, stack),
                    "the store is frozen": _with_a_frozen_store(pages, store),
                }
                _restart_one_of_two(airflow, pages, token, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    slow = [what for what, took_s in during_s.items() if took_s > MOST_RATIO * before_s]
    print(f"/api/v2/dags, p95 before: {before_s * 1000:.0f} ms")
    for what, took_s in during_s.items():
        print(f"/api/v2/dags, p95 while {what}: {took_s * 1000:.0f} ms")
    print("\n".join(f"slower: {one}" for one in slow) or "all pages said so, and recovered")
    return 1 if slow else 0


def _without_zookeeper(pages: Pages, stack: EmbeddedStack) -> float:
    zookeeper = stack.zookeeper
    zookeeper.stop()
    for key in ("near", "far"):
        pages.wait_for(
            key, "Storage: answers", "Lock service: <strong", "the lock service does not answer"
        )
    took_s = _p95_beside(pages)
    again = EmbeddedZookeeper(zookeeper.folder, zookeeper.port)
    again.start()
    stack.zookeeper = again
    for key in ("near", "far"):
        pages.wait_for(key, "Lock service: answers")
    print("ZooKeeper was away: said so, recovered", flush=True)
    return took_s


def _with_a_frozen_store(pages: Pages, store: EmbeddedS3proxy) -> float:
    with _frozen(store):
        end_s = time.monotonic() + FROZEN_S
        pages.wait_for("far", "Stale: the storage does not answer")
        assert "Storage: answers" in pages.text("near")
        took_s = _p95_beside(pages)
        time.sleep(max(end_s - time.monotonic(), 0))
        assert "Stale: the storage does not answer" in pages.text("far")
    pages.wait_for("far", "Storage: answers")
    print("the store was frozen: said so, recovered", flush=True)
    return took_s


def _p95_beside(pages: Pages) -> float:
    """Return the p95 of Airflow's API while both pages are asked for now and then."""
    took_s = []
    for number in range(100):
        if number % 25 == 0:
            for key in ("near", "far"):
                pages.text(key)
        took_s.append(pages.api_s())
    return p95(took_s)


@contextmanager
def _frozen(store: EmbeddedS3proxy) -> Iterator[None]:
    assert store._server
    below = psutil.Process(store._server._guard.pid).children(recursive=True)
    for one in below:
        one.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for one in below:
            one.send_signal(signal.SIGCONT)


def _restart_one_of_two(airflow: EmbeddedAirflow, first: Pages, token: str, folder: Path) -> None:
    """Restart a second API server, while the first one goes on."""
    port = free_port()
    assert airflow._server
    environment = psutil.Process(airflow._server._guard.pid).environ()  # with the secrets of the first
    environment["AIRFLOW__API__PORT"] = str(port)
    command = [sys.executable, "-m", "airflow", "api-server"]
    second = Pages(f"http://127.0.0.1:{port}", token)
    for number in range(2):
        with Server("api-server", command, environment, folder / f"second{number}.log"):
            wait_for("the second API server", _answers(second))
            second.wait_for("near", "Storage: answers", "Lock service: answers")
        assert "Storage: answers" in first.text("near")
    print("one of two API servers was restarted: both showed the same", flush=True)


def _answers(pages: Pages) -> Callable[[], bool]:
    def asked() -> bool:
        try:
            return bool(pages.text("near"))
        except OSError:
            return False

    return asked


def _upload(lake: Lake, table: Path, path: str) -> None:
    file_system = lake.open(path).files.file_system
    target = path.partition("://")[2]
    for one in sorted(table.rglob("*")):
        if one.is_file():
            file_system.put_file(str(one), f"{target}/{one.relative_to(table).as_posix()}")


if __name__ == "__main__":
    sys.exit(main())
