"""What ``HudiWriteOperator`` adds to a bare ``spark-submit``: ``python -m tests.bench.overhead``.

Both run the same write, one after the other in each round, each on its own table. The job of the bare
one receives the options of optimistic concurrency control by hand. Before and behind the driver, both
are tasks of one real Airflow; inside it, the drivers run alone, without the operator's guards and its
reading of their logs, since a driver beside an Airflow varies by more than what is measured.
``CHECK=1`` makes it a test.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, SparkJob
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.writer.options import writer_options, zookeeper_lock_options
from airflow_occ_provider.submitters.launcher import Launcher
from airflow_occ_provider.submitters.processes import Flag
from tests.bench.harness import Goal, conclude, show
from tests.services.airflow import EmbeddedAirflow
from tests.support.local_drivers import local_driver, local_drivers
from tests.support.observed import until

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


def timed_submit(folder: Path, stack: EmbeddedStack) -> Path:
    """Write a ``spark-submit`` that records when the real one starts and ends."""
    folder.mkdir()
    real = shutil.which(
        "spark-submit", path=f"{Path(sys.executable).parent}:{stack.environment['PATH']}"
    )
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
def airflow(folder: Path, stack: EmbeddedStack, submit: Path) -> Iterator[EmbeddedAirflow]:
    """Start an Airflow whose tasks find the timed ``spark-submit`` first."""
    environment = {**stack.environment, HOSTS_VARIABLE: stack.zookeeper.hosts}
    own = str(Path(sys.executable).parent)
    path = {"PATH": os.pathsep.join([str(submit.parent), own, environment["PATH"]])}
    with EmbeddedAirflow(folder / "airflow", DAGS, environment, path) as running:
        running.add_connection("spark_default", conn_type="spark", host="local[2]")
        running.add_connection(
            "hudi_lock_default",
            conn_type="hudi_zookeeper_lock",
            host=stack.zookeeper.hosts,
            extra={"base_path": LOCK_BASE_PATH},
        )
        until(lambda: running.has_dag("bare") and running.has_dag("ours"), "the DAGs")
        yield running


def write(running: EmbeddedAirflow, folder: Path, name: str, number: int) -> dict[str, float]:
    """Run one write; return the time of each step, in seconds since the epoch."""
    times = folder / f"{name}-{number}.times"
    run_id = running.trigger(name, {"folder": str(folder), "times": str(times)})
    if running.end_of(name, run_id) != "success":
        raise RuntimeError("\n".join(running.log_lines(name, run_id, "write", 1)))
    return recorded(times)


def recorded(times: Path) -> dict[str, float]:
    """Return the recorded time of each step, in seconds since the epoch."""
    steps = [line.split() for line in times.read_text().splitlines()]
    if len(steps) != len(dict(steps)):
        raise RuntimeError(f"more than one driver was started: {steps}")
    return {step: float(at) for step, at in steps}


def drive(folder: Path, stack: EmbeddedStack, submit: Path, name: str, number: int) -> dict[str, float]:
    """Run one driver without Airflow; return the time of each step."""
    times, table = folder / f"{name}-driver-{number}.times", str(folder / f"{name}_alone")
    protection = hand_written_options({HOSTS_VARIABLE: stack.zookeeper.hosts})
    by_hand = {} if name == "ours" else protection
    job = SparkJob(str(JOB), [table, json.dumps({**TABLE_OPTIONS, **by_hand})])
    with local_drivers().prepared(job, protection) as submission:
        ours = (submission.application, *submission.arguments)
        run = ours if name == "ours" else (job.application, *job.arguments)
        command = [str(submit), "--master", "local[2]", "--driver-memory", "1g", *run]
        identity = {IDENTITY_VARIABLE: f"{name}-{number}"}
        environment = {**os.environ, **stack.environment, **identity, "BENCH_TIMES": str(times)}
        if name == "ours":
            driver = Driver(local_driver(command, environment, submission))
            driver.run([])
            code = driver.exit_code
        else:
            code = Launcher().run(command, environment, Flag())
    if code:
        raise RuntimeError(f"{name} ended with exit code {code}")
    return recorded(times)


def by_turns(
    rounds: int, run: Callable[[str, int], dict[str, float]]
) -> dict[str, list[dict[str, float]]]:
    """Run both writes in each round, the order changing; the first round creates the tables."""
    runs: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
    for number in range(-1, rounds):
        for name in sorted(runs, reverse=bool(number % 2)):
            at = run(name, number)
            if number >= 0:
                runs[name].append(at)
    return runs


def outside(at: Mapping[str, float]) -> float:
    """Return the seconds of the task before and behind its driver."""
    return at["driver"] - at["execute"] + at["executed"] - at["ended"]


def inside(at: Mapping[str, float]) -> float:
    """Return the seconds of the driver before its session is ready and behind its write."""
    return at["session_ready"] - at["driver"] + at["ended"] - at["written"]


def added(
    part: Callable[[Mapping[str, float]], float], runs: Mapping[str, list[dict[str, float]]]
) -> Goal:
    """Print the times of a part, and compare the medians."""
    times = {name: [part(at) for at in of] for name, of in runs.items()}
    show(str(part.__doc__).removeprefix("Return the ").rstrip("."), times)
    more_s = statistics.median(times["ours"]) - statistics.median(times["bare"])
    return Goal(f"{part.__name__}: added by ours, p50", more_s, at_most=MOST_S, unit="s")


def main() -> None:
    """Run the rounds, print their times, and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="airflow_occ_overhead_") as scratch:
        folder = Path(scratch)
        with EmbeddedStack(folder / "stack") as stack:
            submit = timed_submit(folder / "bin", stack)
            alone = by_turns(rounds, partial(drive, folder, stack, submit))
            with airflow(folder, stack, submit) as running:
                tasks = by_turns(rounds, partial(write, running, folder))
    sys.exit(conclude([added(outside, tasks), added(inside, alone)]))


if __name__ == "__main__":
    main()
