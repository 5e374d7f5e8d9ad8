"""Runs all writers of one workload in one arm: real Spark, real Hudi, a ZooKeeper, no scheduler."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkProcess
from pathlib import Path

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.bench.conflict.arms import ARMS, Arm
from tests.bench.conflict.by_hand import options_of, run_by_hand
from tests.bench.conflict.events import Job, Run
from tests.bench.conflict.found_rows import compare, read_rows
from tests.bench.conflict.instants import times_of_writes, with_spans
from tests.bench.conflict.job import OPTIONS
from tests.bench.conflict.make_table import BASE
from tests.bench.conflict.ours import run_ours, signature_of
from tests.bench.conflict.place import DRIVER, Place, timed_submit
from tests.bench.conflict.scheduled import airflow, run_scheduled

SLOTS = 3
_BETWEEN_STARTS_S = 0.1
_PATIENCE_S = 1800
_FORK = multiprocessing.get_context("fork")  # a writer starts with all modules, as Airflow's workers do


@dataclass(slots=True)
class Rig:
    """The services of all runs, and the table from which each run starts.

    :param folder: of all files.
    :param stack: running.
    :param partitions: of the table.
    :param rows: of each partition, in one file; so many are written anew with each commit.
    """

    folder: Path
    stack: EmbeddedStack
    partitions: Sequence[str]
    rows: int
    _count: int = field(default=0, init=False)
    _environment: dict[str, str] = field(default_factory=dict, init=False)
    _real: str = field(default="", init=False)

    def __post_init__(self) -> None:
        own, theirs = str(Path(sys.executable).parent), self.stack.environment["PATH"]
        real = shutil.which("spark-submit", path=f"{own}{os.pathsep}{theirs}")
        assert real, "spark-submit is not installed"
        self._real = real
        submit = timed_submit(self.folder / "bin", real)
        path = os.pathsep.join([str(submit.parent), own, theirs])
        self._environment = {**self.stack.environment, "PATH": path}
        self._make_table()

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Make the table of a round: each writer has committed twice before, to its partitions."""
        shutil.rmtree(self._earlier, ignore_errors=True)
        shutil.copytree(self._base, self._earlier)
        writes = [
            (
                [(f"{BASE}{self.partitions.index(one)}", one) for one in job.partitions],
                signature_of(job, night).options(),
            )
            for night in ("first", "second")
            for job in jobs
        ]
        options = {"hoodie.datasource.write.operation": "upsert"}
        self._submit("make_history.py", self._earlier, json.dumps(writes), options=options)

    def run(self, workload: str, letter: str, turn: int, seed: int, jobs: Sequence[Job]) -> Run:
        """Run the writers of one workload to their ends; return what they did."""
        arm, place = ARMS[letter], self._place(ARMS[letter])
        writers = self._started(place, arm, jobs, seed)
        try:
            _wait(writers, place)
        finally:
            for writer in writers:
                writer.terminate()
        slots, events = arm.pool or SLOTS, tuple(place.events())
        run = Run(workload, letter, turn, seed, slots, tuple(jobs), events)
        return self._with_rows(run, place)

    def run_scheduled(
        self, workload: str, letters: str, turn: int, seed: int, jobs: Sequence[Job]
    ) -> Iterator[Run]:
        """Run the writers of one workload as tasks of a real Airflow, in each of some ways."""
        places = {letter: self._place(ARMS[letter]) for letter in letters}
        some = places[letters[0]]
        with airflow(self.folder / "airflow", some, jobs, SLOTS) as running:
            for letter, place in places.items():
                begun = replace(place, began_s=time.time())
                run_scheduled(running, begun, jobs, letter)
                run = Run(workload, letter, turn, seed, SLOTS, tuple(jobs), tuple(begun.events()))
                yield self._with_rows(run, begun)

    def _with_rows(self, run: Run, place: Place) -> Run:
        """Return the run with what its rows and its timeline show; remove its table."""
        table = Path(place.table)
        found, times = read_rows(table), times_of_writes(table)
        lost, doubled = compare(found.keys, run.jobs, run.events)
        missing = len(self.partitions) * self.rows - found.others  # of the rows that were there before
        shutil.rmtree(table)
        return replace(
            run,
            events=tuple(with_spans(run.events, found.instants, times, place.began_s)),
            lost=lost + max(missing, 0),
            doubled=doubled + max(-missing, 0),
        )

    def _started(self, place: Place, arm: Arm, jobs: Sequence[Job], seed: int) -> list[ForkProcess]:
        writers = []
        for job in jobs:
            run = self._target(place, job, arm, seed)
            writer = _FORK.Process(target=_write, args=(place.output(job.writer), run), name=job.writer)
            writer.start()
            writers.append(writer)
            time.sleep(_BETWEEN_STARTS_S)
        return writers

    def _target(self, place: Place, job: Job, arm: Arm, seed: int) -> Callable[[], None]:
        if arm.ours:
            return lambda: run_ours(place, job, arm)
        return lambda: run_by_hand(place, job, arm, seed)

    def _place(self, arm: Arm) -> Place:
        self._count += 1
        name = f"{self._count}-{arm.letter}"
        folder = self.folder / name
        folder.mkdir()
        table = shutil.copytree(self._earlier, folder / "table")
        return Place(
            folder,
            str(table),
            name,
            self.stack.zookeeper.hosts,
            self._environment,
            _FORK.Semaphore(arm.pool or SLOTS),
            time.time(),
        )

    @property
    def _base(self) -> Path:
        return self.folder / "base"

    @property
    def _earlier(self) -> Path:
        return self.folder / "earlier"

    def _make_table(self) -> None:
        partitions = ",".join(self.partitions)
        options = {
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.bulkinsert.shuffle.parallelism": "1",
        }
        self._submit("make_table.py", self._base, partitions, str(self.rows), options=options)

    def _submit(self, job: str, table: Path, *arguments: str, options: Mapping[str, str]) -> None:
        """Run a job that prepares a table; the last of its arguments are Hudi's options."""
        given = {**OPTIONS, **options_of(ARMS["a"], self.stack.zookeeper.hosts), **options}
        path = str(Path(__file__).parent / job)
        with table.with_suffix(".log").open("w") as log:
            subprocess.run(
                [self._real, *DRIVER, path, str(table), *arguments, json.dumps(given)],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_PATIENCE_S,
                check=True,
            )


def _write(output: Path, run: Callable[[], None]) -> None:
    """Run a writer in its own process: what it prints is kept, and its end is its driver's end."""
    with output.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run()


def _wait(writers: Sequence[ForkProcess], place: Place) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    for writer in writers:
        writer.join(max(deadline - time.monotonic(), 0))
        if writer.exitcode != 0:
            output = place.output(writer.name).read_text()[-3000:]
            ended = "did not end" if writer.exitcode is None else f"ended with {writer.exitcode}"
            raise RuntimeError(f"{writer.name} {ended}:\n{output}")
