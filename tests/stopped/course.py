"""Trials: a driver and its attempt are stopped for longer than the lease, around a commit."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_occ_provider.driver.contract import FACTS
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from tests.conftest import SMALL_TABLES
from tests.support.stores import Lake
from tests.support.writers import QUIET

ROOT = Path(__file__).parents[2]
JOB = ROOT / "tests" / "jobs" / "leased_writes.py"
TABLE_TRIALS = 25  # a longer timeline makes the writes slower
_PATIENCE_S = 300.0
_STEP_S = 0.002
_COMPLETED = re.compile(r"(\d+)_\d+\.(?:commit|deltacommit)")
Window = list[float]
"""The seconds from the check to the storage's answer, many times."""


@dataclass(frozen=True)
class Trial:
    """One write, and what is stopped around its commit.

    :param has_life: whether the driver lives on the lease; without, it is the control.
    :param stops_driver: whether the driver is stopped too, or its attempt alone.
    :param pause_s: how long the driver waits before it writes.
    """

    number: int
    has_life: bool
    stops_driver: bool
    pause_s: float = 0.0

    @property
    def arm(self) -> str:
        """The name of the trials that are alike."""
        stopped = "driver and attempt" if self.stops_driver else "attempt"
        return f"{'leased' if self.has_life else 'control'}, {stopped} stopped"


@dataclass
class Result:
    """What became of a trial.

    :param late_s: how long after the lease's end its commit was seen; negative before; ``None`` if it
        did not commit.
    :param shown_s: how long after the lease's end and after its driver went on its commit was seen.
    :param is_after_end: whether it has a commit that its ``end``, a certain one, does not name.
    """

    trial: Trial
    error: str
    late_s: float | None
    shown_s: float
    is_after_end: bool

    @property
    def is_late(self) -> bool:
        """Whether it committed after the lease's end."""
        return self.late_s is not None and self.late_s > 0

    def __str__(self) -> str:
        name = f"{self.trial.number} {self.trial.arm}"
        if self.late_s is None:
            return f"{name}: no commit; {self.error[-90:]}"
        after = "; it is after the end" if self.is_after_end else ""
        return f"{name}: commit {self.late_s:+.3f} s, {self.shown_s:+.3f} s after a resumption{after}"


@dataclass
class Course:
    """A driver and an attempt that serve one trial after the other."""

    scratch: Path
    lake: Lake
    ttl_s: float
    rng: random.Random
    driver: subprocess.Popen[bytes] = field(init=False)
    attempt: subprocess.Popen[str] = field(init=False)
    pids: tuple[int, ...] = field(init=False)
    write_s: float = 2.0
    _lines: queue.Queue[dict[str, Any]] = field(init=False, default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.commands = self.scratch / "commands"
        self.commands.mkdir(parents=True)
        environment = spark_environment(self.scratch / "spark", store=self.lake.store)
        with (self.scratch / "spark" / "conf" / "spark-defaults.conf").open("a") as conf:
            conf.write(SMALL_TABLES)
        (self.scratch / "spark" / "conf" / "log4j2.properties").write_text(QUIET)
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
        command = ["spark-submit", "--master", "local[1]", str(JOB), str(self.commands)]
        with (self.scratch / "driver.log").open("wb") as log:
            self.driver = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.attempt = subprocess.Popen(
            [sys.executable, "-m", "tests.stopped.attempt"], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        pids = self._until(lambda: self._json("pids"))
        self.pids = (pids["jvm"], pids["python"])

    def _read(self) -> None:
        for line in self.attempt.stdout or ():
            self._lines.put(json.loads(line))

    def _json(self, name: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.commands / name).read_text())
        return None

    def _until(self, ready: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _PATIENCE_S
        while not (value := ready()):
            log = self.scratch / "driver.log"
            assert self.driver.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(_STEP_S)
        return value

    def warm_up(self) -> Window:
        """Make a first write, of which nothing is stopped, and return the driver's window."""
        self._command(0, self._folder(0), has_life=False, pause_s=0.0)
        window: Window = self._result(0)["window"]
        return window

    def run(self, trial: Trial) -> Result:
        """Run one trial."""
        folder = self._folder(trial.number)
        self._tell(json.dumps({"folder": folder, "ttl_s": self.ttl_s}))
        ends = self._line("ends")["ends"]
        with self._commits(trial.number) as commits:
            before = set(commits)
            self._command(trial.number, folder, has_life=trial.has_life, pause_s=trial.pause_s)
            self._until((self.commands / f"{trial.number}.begun").exists)
            time.sleep(self.rng.uniform(0, 1.2 * self.write_s))
            for pid in self._stopped(trial):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.rng.uniform(0, 0.02))
            time.sleep(self.ttl_s + self.rng.uniform(0.2, 1.0))
            resumed, resumed_s = self._stopped(trial), 0.0
            self.rng.shuffle(resumed)
            for pid in resumed:
                if pid == self.pids[0]:
                    resumed_s = time.time()
                os.kill(pid, signal.SIGCONT)
            result = self._result(trial.number)
        self._tell("end")
        while "ended" not in (line := self._lines.get(timeout=_PATIENCE_S)):
            ends = line.get("ends", ends)
        new = {time: seen_s for time, seen_s in commits.items() if time not in before}
        seen_s = max(new.values(), default=None)
        return Result(
            trial,
            result["error"],
            None if seen_s is None else seen_s - ends,
            0.0 if seen_s is None else seen_s - max(ends, resumed_s),
            any(not new.keys() <= committed for committed in self._certain_ends(folder)),
        )

    def _stopped(self, trial: Trial) -> list[int]:
        pids = [self.attempt.pid, *(self.pids if trial.stops_driver else ())]
        self.rng.shuffle(pids)
        return pids

    def _folder(self, number: int) -> str:
        url = self.lake.path(f"{self.scratch.name}/folders/{number}")
        AttemptFolder(url).write("made", b"")
        return url

    def _table(self, number: int) -> str:
        return self.lake.path(f"{self.scratch.name}/t{number // TABLE_TRIALS}")

    @contextmanager
    def _commits(self, number: int) -> Iterator[dict[str, float]]:
        """Look for the completed writes of a trial's table: when was each seen first?

        A time of a storage may be that of a file before its rename.
        """
        timeline = AttemptFolder(f"{self._table(number)}/.hoodie/timeline")
        commits: dict[str, float] = {}
        has_looked, is_over = threading.Event(), threading.Event()

        def look() -> None:
            while True:
                is_last = is_over.is_set()
                for match in filter(None, map(_COMPLETED.fullmatch, timeline.entries())):
                    commits.setdefault(match.group(1), time.time())
                has_looked.set()
                if is_last:
                    return
                is_over.wait(_STEP_S)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            assert has_looked.wait(_PATIENCE_S)
            yield commits
        finally:
            is_over.set()
            looking.join()

    def _certain_ends(self, folder: str) -> list[set[str]]:
        """Return the commits that each certain ``end`` of a driver names."""
        facts = map(json.loads, (AttemptFolder(folder).read(FACTS) or b"").splitlines())
        return [set(fact["committed"]) for fact in facts if fact["fact"] == "end" and fact["is_certain"]]

    def _command(self, number: int, folder: str, *, has_life: bool, pause_s: float) -> None:
        command = {"folder": folder, "table": self._table(number), "ttl_s": self.ttl_s}
        path = self.commands / f"{number}.part"
        path.write_text(json.dumps({**command, "has_life": has_life, "pause_s": pause_s}))
        path.replace(self.commands / f"{number}.command")

    def _result(self, number: int) -> Any:
        result = self._until(lambda: self._json(f"{number}.result"))
        if not result["error"]:
            self.write_s = min(max(0.2, result["seconds"]), 5.0)
        return result

    def _tell(self, line: str) -> None:
        assert self.attempt.stdin
        self.attempt.stdin.write(line + "\n")
        self.attempt.stdin.flush()

    def _line(self, name: str) -> dict[str, Any]:
        while name not in (line := self._lines.get(timeout=_PATIENCE_S)):
            pass
        return line

    def end(self) -> None:
        """End both processes."""
        (self.commands / "end").touch()
        for process in (self.attempt, self.driver):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()
        self._reading.join()
        for stream in (self.attempt.stdin, self.attempt.stdout):
            if stream:
                stream.close()
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def trials(
    lake: Lake, runs: int, controls: int, seed: int, ttl_s: float, lanes: int
) -> tuple[list[Window], list[Result]]:
    """Run trials, and controls between them; return the drivers' windows, and the results.

    :param lanes: how many drivers run them side by side: a trial mostly waits.
    """
    kinds = [True] * runs + [False] * controls
    random.Random(seed).shuffle(kinds)

    def run(lane: int) -> tuple[Window, list[Result]]:
        scratch = lake.folder / f"lane{lane}"
        return run_lane(scratch, lake, kinds[lane::lanes], random.Random(seed * 1000 + lane), ttl_s)

    with ThreadPoolExecutor(lanes) as pool:
        windows, results = zip(*pool.map(run, range(lanes)), strict=True)
    return list(windows), [result for of_lane in results for result in of_lane]


def run_lane(
    scratch: Path, lake: Lake, kinds: Sequence[bool], rng: random.Random, ttl_s: float
) -> tuple[Window, list[Result]]:
    """Run the trials of one driver, and print each.

    :param kinds: for each whether its driver has a life.
    """
    course = Course(scratch, lake, ttl_s, rng)
    results = []
    try:
        window = course.warm_up()
        for number, has_life in enumerate(kinds, 1):
            stops_driver = rng.random() < 0.7
            # A driver that goes on alone writes at any moment of two terms of the lease.
            pause_s = 0.0 if stops_driver else rng.uniform(0, 2 * ttl_s)
            results.append(course.run(Trial(number, has_life, stops_driver, pause_s)))
            print(scratch.name, results[-1], flush=True)
    finally:
        course.end()
    return window, results
