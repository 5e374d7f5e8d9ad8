"""What the pages cost Airflow's API server: ``python -m tests.bench.pages``.

A real Airflow knows 50 tables, each with four pending writers, copies of one that real Hudi wrote.
Ten clients ask for pages again every ten seconds, as ``page.js`` does: five for that of all tables, five
for that of one. Meanwhile, and without them, ``/api/v2/dags`` is asked for, in windows A B B A.
``CHECK=1`` makes it a test, ``SMOKE=1`` short.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_occ_provider.embedded.airflow import EmbeddedAirflow
from tests.bench.harness import Goal, conclude
from tests.golden.table_archive import unpack

ARCHIVE = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0" / "early_conflict.zip"
DAGS = Path(__file__).parents[1] / "pages" / "dags"
SMOKE = os.environ.get("SMOKE") == "1"
TABLES, WRITERS, CLIENTS = 50, 4, 10
WINDOW_S = 30.0 if SMOKE else 120.0
REFRESH_S, PROBE_S = 10.0, 0.2
MOST_RATIO = 1.5
_TIMEOUT_S = 60


def make_tables(folder: Path) -> list[Path]:
    """Make the tables; their pending writes beat for as long as the benchmark runs."""
    return [_make(folder / f"t{number}") for number in range(TABLES)]


def _make(folder: Path) -> Path:
    table = unpack(ARCHIVE, folder)
    timeline, beats = table / ".hoodie" / "timeline", table / ".hoodie" / ".heartbeat"
    pending = sorted(one.name[:17] for one in timeline.glob("*.inflight"))
    done = {one.name[:17] for one in timeline.iterdir() if "_" in one.name}
    model = next(one for one in pending if one not in done)
    for number in range(WRITERS):
        instant = f"{int(model) + number + 1}"
        for file in timeline.glob(f"{model}*"):
            shutil.copy2(file, timeline / file.name.replace(model, instant))
    beats.mkdir(exist_ok=True)
    for one in [one for one in pending if one not in done]:
        for file in timeline.glob(f"{one}*"):
            file.unlink()
    later_s = time.time() + 3600
    for file in timeline.glob("*.inflight"):
        if file.name[:17] not in done:
            (beats / file.name[:17]).touch()
            os.utime(beats / file.name[:17], (later_s, later_s))
    return table


def get(url: str, token: str) -> tuple[float, str]:
    """Return the seconds that an answer took, and its text."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310
    began_s = time.perf_counter()
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        text = answer.read().decode()
    return time.perf_counter() - began_s, text


@contextmanager
def viewers(url: str, token: str, took_s: list[float]) -> Iterator[None]:
    """Let the clients look during a ``with`` block."""
    ended = threading.Event()

    def look(number: int) -> None:
        page = "/hudi/" if number % 2 else f"/hudi/t/t{number}/"
        pause_s = REFRESH_S * number / CLIENTS  # they do not come all at once
        while not ended.wait(pause_s):
            took_s.append(get(url + page, token)[0])
            pause_s = REFRESH_S

    threads = [threading.Thread(target=look, args=(number,)) for number in range(CLIENTS)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        ended.set()
        for one in threads:
            one.join(_TIMEOUT_S)


def probe(url: str, token: str) -> list[float]:
    """Return the seconds of each request for the DAGs in a window."""
    end_s, took_s = time.monotonic() + WINDOW_S, []
    while time.monotonic() < end_s:
        took_s.append(get(f"{url}/api/v2/dags", token)[0])
        time.sleep(PROBE_S)
    return took_s


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[18]


def main() -> int:
    """Run it; return 1 if a goal is missed and ``CHECK`` is set."""
    folder = Path(tempfile.mkdtemp(prefix="bench_pages_"))
    try:
        tables = make_tables(folder / "lake")
        named = [{"table": str(one), "key": f"t{number}"} for number, one in enumerate(tables)]
        settings = {"AIRFLOW__HUDI_OCC__UI_TABLES": json.dumps(named)}
        with EmbeddedAirflow(folder / "airflow", DAGS, os.environ, settings) as airflow:
            token = str(airflow._request("GET", "/auth/token")["access_token"])
            alone, beside, pages = list[float](), list[float](), list[float]()
            probe(airflow.url, token)  # the first requests are slower
            alone += probe(airflow.url, token)
            with viewers(airflow.url, token, pages):
                beside += probe(airflow.url, token) + probe(airflow.url, token)
            time.sleep(REFRESH_S)
            alone += probe(airflow.url, token)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"/api/v2/dags alone: {len(alone)} requests, p95 {p95(alone) * 1000:.0f} ms")
    print(f"beside {CLIENTS} viewers: {len(beside)} requests, p95 {p95(beside) * 1000:.0f} ms")
    print(f"pages: {len(pages)}, p50 {statistics.median(pages):.2f} s, p95 {p95(pages):.2f} s")
    ratio = p95(beside) / p95(alone)
    return conclude([Goal("p95 of /api/v2/dags beside viewers / alone", ratio, at_most=MOST_RATIO)])


if __name__ == "__main__":
    sys.exit(main())
