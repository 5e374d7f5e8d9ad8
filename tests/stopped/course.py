"""Trials: a driver and its attempt are stopped for longer than the lease, around a commit."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.spark import spark_environment
from tests.conftest import SMALL_TABLES
from tests.writers import QUIET

ROOT = Path(__file__).parents[2]
JOB = ROOT / "tests" / "jobs" / "leased_writes.py"
TABLE_TRIALS = 25  # a longer timeline makes the writes slower
_PATIENCE_S = 300.0
_STEP_S = 0.002


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


@dataclass
class Result:
    """What became of a trial.

    :param late_s: how long after the lease's end its commit was there; negative before; ``None`` if it
        did not commit.
    """

    trial: Trial
    error: str
    late_s: float | None

    @property
    def is_late(self) -> bool:
        """Whether it committed after the lease's end."""
        return self.late_s is not None and self.late_s > 0

    def __str__(self) -> str:
        kind = "leased" if self.trial.has_life else "control"
        stopped = "driver and attempt" if self.trial.stops_driver else "attempt"
        if self.late_s is None:
            return f"{self.trial.number} {kind}, {stopped} stopped: no commit; {self.error[-90:]}"
        return f"{self.trial.number} {kind}, {stopped} stopped: commit {self.late_s:+.3f} s"


@dataclass
class Course:
    """A driver and an attempt that serve one trial after the other."""

    scratch: Path
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
        environment = spark_environment(self.scratch / "spark")
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

    def warm_up(self) -> None:
        """Make a first write, of which nothing is stopped."""
        self._command(0, self._folder(0), has_life=False, pause_s=0.0)
        self._result(0)

    def run(self, trial: Trial) -> Result:
        """Run one trial."""
        folder = self._folder(trial.number)
        self._tell(json.dumps({"folder": str(folder), "ttl_s": self.ttl_s}))
        ends = self._line("ends")["ends"]
        before = set(self._completed(trial.number))
        self._command(trial.number, folder, has_life=trial.has_life, pause_s=trial.pause_s)
        self._until((folder / "begun").exists)
        time.sleep(self.rng.uniform(0, 1.2 * self.write_s))
        for pid in self._stopped(trial):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0, 0.02))
        time.sleep(self.ttl_s + self.rng.uniform(0.2, 1.0))
        resumed = self._stopped(trial)
        self.rng.shuffle(resumed)
        for pid in resumed:
            os.kill(pid, signal.SIGCONT)
        result = self._result(trial.number)
        self._tell("end")
        while "ended" not in (line := self._lines.get(timeout=_PATIENCE_S)):
            ends = line.get("ends", ends)
        new = {
            path: time_s for path, time_s in self._completed(trial.number).items() if path not in before
        }
        late_s = max(new.values()) - ends if new else None
        return Result(trial, result["error"], late_s)

    def _stopped(self, trial: Trial) -> list[int]:
        pids = [self.attempt.pid, *(self.pids if trial.stops_driver else ())]
        self.rng.shuffle(pids)
        return pids

    def _folder(self, number: int) -> Path:
        folder = self.scratch / "folders" / str(number)
        folder.mkdir(parents=True)
        return folder

    def _table(self, number: int) -> Path:
        return self.scratch / f"t{number // TABLE_TRIALS}"

    def _completed(self, number: int) -> dict[Path, float]:
        """Return the completed writes of a trial's table, with the times of their files."""
        timeline = self._table(number) / ".hoodie" / "timeline"
        return {path: path.stat().st_mtime for path in timeline.glob("*_*.*commit")}

    def _command(self, number: int, folder: Path, *, has_life: bool, pause_s: float) -> None:
        table = f"file://{self._table(number)}"
        command = {"folder": str(folder), "table": table, "ttl_s": self.ttl_s}
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
    scratch: Path, runs: int, seed: int, ttl_s: float, controls: int | None = None
) -> Iterator[Result]:
    """Run trials, and controls between them.

    :param controls: how many; by default as many as the others.
    """
    rng = random.Random(seed)
    controls = runs if controls is None else controls
    kinds = [True] * runs + [False] * controls
    rng.shuffle(kinds)
    course = Course(scratch, ttl_s, rng)
    try:
        course.warm_up()
        for number, has_life in enumerate(kinds, 1):
            stops_driver = rng.random() < 0.7
            # A driver that goes on alone writes at any moment of two terms of the lease.
            pause_s = 0.0 if stops_driver else rng.uniform(0, 2 * ttl_s)
            yield course.run(Trial(number, has_life, stops_driver, pause_s))
    finally:
        course.end()
