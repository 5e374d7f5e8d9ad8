"""What ``HudiWriteOperator`` adds to a bare ``spark-submit``: ``python -m tests.bench.overhead``.

Both run the same write in one real Airflow, one after the other in each round, each on its own table.
The job of the bare one receives the options of optimistic concurrency control by hand. ``CHECK=1``
makes it a test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_occ_provider.embedded.airflow import EmbeddedAirflow
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.writer.options import writer_options, zookeeper_lock_options
from tests.bench.harness import Goal, conclude, show

JOB = Path(__file__).parents[1] / "jobs" / "timed_write.py"
DAGS = Path(__file__).parent / "overhead_dags"
LOCK_BASE_PATH = "/hudi/locks"
TABLE_OPTIONS = {
    "hoodie.table.name": "overhead",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.metadata.enable": "false",
    "hoodie.upsert.shuffle.parallelism": "1",
}
HOSTS_VARIABLE = "BENCH_ZOOKEEPER"
MOST_S = 0.3
_PATIENCE_S = 900
_ENDED = ("success", "failed")


def hand_written_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options of optimistic concurrency control that a careful user gives by hand."""
    lock = zookeeper_lock_options(
        environment.get(HOSTS_VARIABLE, ""),
        LOCK_BASE_PATH,
        session_timeout_ms=60_000,
        connection_timeout_ms=15_000,
        wait_time_ms=60_000,
        num_retries=50,
    )
    return dict(writer_options(lock, {}))


def timed_submit(folder: Path, real: str) -> Path:
    """Write a ``spark-submit`` that records when the real one starts and ends."""
    path = folder / "spark-submit"
    path.write_text(
        "#!/bin/bash\n"
        'echo "driver $(date +%s.%N)" >> "$BENCH_TIMES"\n'
        f'"{real}" "$@"\ncode=$?\n'
        'echo "ended $(date +%s.%N)" >> "$BENCH_TIMES"\n'
        "exit $code\n"
    )
    path.chmod(0o755)
    return path


@contextmanager
def airflow(folder: Path, stack: EmbeddedStack) -> Iterator[EmbeddedAirflow]:
    """Start an Airflow whose tasks find the timed ``spark-submit`` first."""
    environment = dict(stack.environment)
    real = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}:{environment['PATH']}")
    binaries = folder / "bin"
    binaries.mkdir()
    timed_submit(binaries, str(real))
    environment[HOSTS_VARIABLE] = stack.zookeeper.hosts
    own = str(Path(sys.executable).parent)
    path = {"PATH": os.pathsep.join([str(binaries), own, environment["PATH"]])}
    with EmbeddedAirflow(folder / "airflow", DAGS, environment, path) as running:
        running.add_connection("spark_default", conn_type="spark", host="local[2]")
        running.add_connection(
            "hudi_lock_default",
            conn_type="hudi_zookeeper_lock",
            host=stack.zookeeper.hosts,
            extra={"base_path": LOCK_BASE_PATH},
        )
        wait_for(lambda: running.has_dag("bare") and running.has_dag("ours"))
        yield running


def wait_for(happened: Callable[[], object]) -> None:
    """Wait until something has happened."""
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {_PATIENCE_S} s")
        time.sleep(0.2)


def write(running: EmbeddedAirflow, folder: Path, name: str, number: int) -> dict[str, float]:
    """Run one write; return the time of each step, in seconds since the epoch."""
    times = folder / f"{name}-{number}.times"
    run_id = running.trigger(name, {"folder": str(folder), "times": str(times)})
    path = f"/dags/{name}/dagRuns/{run_id}"
    wait_for(lambda: running.call("GET", path)["state"] in _ENDED)
    state = running.call("GET", path)["state"]
    if state != "success":
        raise RuntimeError("\n".join(running.log_lines(name, run_id, "write", 1)))
    steps = [line.split() for line in times.read_text().splitlines()]
    if len(steps) != len(dict(steps)):
        raise RuntimeError(f"{name} started more than one driver: {steps}")
    return {step: float(at) for step, at in steps}


def outside(at: Mapping[str, float]) -> float:
    """Return the seconds of the task before and behind its driver."""
    return at["driver"] - at["execute"] + at["executed"] - at["ended"]


def inside(at: Mapping[str, float]) -> float:
    """Return the seconds of the driver before its session is ready and behind its write."""
    return at["session_ready"] - at["driver"] + at["ended"] - at["written"]


def during(at: Mapping[str, float]) -> float:
    """Return the seconds of the write itself."""
    return at["written"] - at["session_ready"]


def main() -> None:
    """Run the rounds, print their times, and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    runs: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
    with tempfile.TemporaryDirectory(prefix="airflow_occ_overhead_") as scratch:
        folder = Path(scratch)
        with EmbeddedStack(folder / "stack") as stack, airflow(folder, stack) as running:
            for number in range(-1, rounds):
                for name in sorted(runs, reverse=bool(number % 2)):
                    at = write(running, folder, name, number)
                    if number >= 0:  # the first creates the table
                        runs[name].append(at)
    goals = []
    for part, most_s in ((outside, MOST_S), (inside, MOST_S), (during, None)):
        times = {name: [part(at) for at in of] for name, of in runs.items()}
        show(str(part.__doc__).removeprefix("Return the ").rstrip("."), times)
        added = statistics.median(times["ours"]) - statistics.median(times["bare"])
        goals.append(Goal(f"{part.__name__}: added by ours, p50", added, at_most=most_s, unit="s"))
    sys.exit(conclude(goals))


if __name__ == "__main__":
    main()
