"""Real triggerers, each on a metadata database of its own with the same deferred tasks in it."""

from __future__ import annotations

import json
import os
import resource
import secrets
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
from cryptography.fernet import Fernet

from airflow_occ_provider.embedded.process import EmbeddedError, Server
from tests.bench.commit_load import CommitLoad
from tests.bench.load import Load
from tests.bench.remote_load import RemoteLoad
from tests.bench.watchers import READINGS, WAKE

_ROOT = Path(__file__).parents[2]
_DAGS = Path(__file__).parent / "dags"
_PATIENCE_S = 900.0
_BUSY_S = 30.0
_SETTINGS = {
    "CORE__LOAD_EXAMPLES": "False",
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "CORE__PARALLELISM": "1",
    "CORE__DAGBAG_IMPORT_TIMEOUT": "600",
    "DATABASE__SQL_ALCHEMY_POOL_SIZE": "2",
    "SCHEDULER__MAX_DAGRUNS_TO_CREATE_PER_LOOP": "1000",
    "SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE": "500",
    "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
    "SCHEDULER__ENABLE_TRACEMALLOC": "False",
    "TRIGGERER__MAX_TRIGGER_TO_SELECT_PER_LOOP": "1000",
    "USAGE_DATA_COLLECTION__ENABLED": "False",
}


def wait_until(happened: Callable[[], object], what: str) -> float:
    """Wait until something has happened; return the seconds that it took."""
    begun_s = time.monotonic()
    while not happened():
        if time.monotonic() - begun_s > _PATIENCE_S:
            raise EmbeddedError(f"{what}: not in {_PATIENCE_S:g} s")
        time.sleep(0.25)
    return time.monotonic() - begun_s


class Event(NamedTuple):
    """An event that a triggerer has recorded: its task is scheduled again.

    :param dag: of the task.
    :param task: its id.
    :param run: logical date of its run, to the second.
    :param at_s: epoch seconds.
    """

    dag: str
    task: str
    run: str
    at_s: float


@dataclass(frozen=True)
class Home:
    """An Airflow home; all processes started from it use the same keys.

    :param folder: of it.
    :param load: what its DAGs watch.
    :param keys: of all homes of one benchmark.
    :param dags: folder of its DAGs.
    """

    folder: Path
    load: Load | RemoteLoad | CommitLoad
    keys: Mapping[str, str]
    dags: Path = _DAGS

    @classmethod
    def make(cls, folder: Path, load: Load | RemoteLoad | CommitLoad, dags: Path = _DAGS) -> Self:
        """Make one, with the DAGs of the load in its metadata database."""
        keys = {
            "CORE__FERNET_KEY": Fernet.generate_key().decode(),
            "API__SECRET_KEY": secrets.token_hex(32),
            "API_AUTH__JWT_SECRET": secrets.token_hex(64),
        }
        home = cls(folder, load, keys, dags)
        folder.mkdir()
        for command in (["db", "migrate"], ["dags", "reserialize"]):
            home.run(*command)
        if home.ask("SELECT count(*) FROM dag")[0][0] != load.tables + 1:
            errors = home.ask("SELECT stacktrace FROM import_error")
            raise EmbeddedError(f"the DAGs were not read: {errors}")
        return home

    @property
    def readings(self) -> Path:
        return self.folder / "readings.jsonl"

    @property
    def wake(self) -> Path:
        return self.folder / "wake"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")},
            **{f"AIRFLOW__{name}": value for name, value in {**_SETTINGS, **self.keys}.items()},
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            **self.load.environment(),
            "AIRFLOW_HOME": str(self.folder),
            "PYTHONPATH": str(_ROOT),
            READINGS: str(self.readings),
            WAKE: str(self.wake),
        }

    def defer(self) -> float:
        """Let a real scheduler start every task from its trigger; return the seconds it took."""
        command = [sys.executable, "-m", "airflow", "scheduler", "--skip-serve-logs"]
        log = self.folder / "scheduler.log"
        with Server("scheduler", command, self.environment, log) as scheduler:
            try:
                return wait_until(lambda: self.deferred() > self.load.triggers, "deferred tasks")
            except EmbeddedError as error:
                raise EmbeddedError(f"{error}; {self.deferred()} are\n{scheduler.tail()}") from None

    def copy(self, folder: Path, trigger: str) -> Home:
        """Return a home with the same tasks, deferred to another trigger.

        :param folder: of the copy.
        :param trigger: class path of the trigger.
        """
        folder.mkdir()
        with self._database() as here, closing(sqlite3.connect(folder / "airflow.db")) as there, there:
            here.backup(there)
            there.execute(
                "UPDATE trigger SET classpath = ? WHERE classpath NOT LIKE '%Probe%'", (trigger,)
            )
        return Home(folder, self.load, self.keys, self.dags)

    def ask(self, query: str) -> list[Any]:
        with self._database() as database:
            return database.execute(query).fetchall()

    def deferred(self) -> int:
        with suppress(sqlite3.OperationalError):  # locked
            return int(self.ask("SELECT count(*) FROM task_instance WHERE state = 'deferred'")[0][0])
        return 0

    def events(self) -> list[Event]:
        """Return the events that the triggerer has recorded."""
        rows = self.ask(
            "SELECT ti.dag_id, ti.task_id, run.logical_date, ti.scheduled_dttm FROM task_instance ti "
            "JOIN dag_run run USING (dag_id, run_id) WHERE ti.state = 'scheduled'"
        )
        return [Event(dag, task, run.partition(".")[0], _epoch_s(at)) for dag, task, run, at in rows]

    def _database(self) -> closing[sqlite3.Connection]:
        url = f"file:{self.folder}/airflow.db?mode=ro"
        return closing(sqlite3.connect(url, _BUSY_S, uri=True))

    def run(self, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise EmbeddedError(f"airflow {' '.join(command)}: {done.stderr[-2000:]}")


def _epoch_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Window:
    """What one triggerer did in a while.

    :param seconds: how long it was.
    :param cores: CPU seconds of its processes in a second.
    :param lags_ms: by how much naps of 10 ms were too long on its event loop.
    :param listings: by folder, or file, what it asked of the storage.
    """

    seconds: float
    cores: float
    lags_ms: list[float]
    listings: Counter[str]

    def lag_ms(self, percent: int) -> float:
        return statistics.quantiles(self.lags_ms, n=100)[percent - 1]


class Triggerer:
    """A real triggerer for the time of a ``with`` block, which can be paused.

    :param home: its Airflow home.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        command = [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"]
        command += ["--capacity", str(home.load.triggers * 2)]
        self._server = Server("triggerer", command, home.environment, home.folder / "triggerer.log")
        self._guard = psutil.Process(self._server._guard.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes():
            with suppress(psutil.Error):
                process.kill()  # its last writes to the database are not needed
        self._server.stop()

    def wait(self) -> float:
        """Wait until all triggers run; return the seconds that it took."""
        name = self.home.folder.name
        try:
            return wait_until(lambda: self._running() > self.home.load.triggers, f"triggers of {name}")
        except EmbeddedError as error:
            raise EmbeddedError(f"{error}; {self._running()} do\n{self._server.tail()}") from None

    def pause(self) -> None:
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        for process in self._processes():
            process.resume()

    def memory_mb(self) -> float:
        return sum(process.memory_info().rss for process in self._processes()) / 2**20

    def cpu_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())

    def counted(self, name: str) -> int:
        """Return how often the probe has counted something so far."""
        readings = self._readings()
        return int(readings[-1]["listings"].get(name, 0)) if readings else 0

    @contextmanager
    def awake(self) -> Iterator[None]:
        self.resume()
        yield
        self.pause()

    def watch(self, settle_s: float, seconds: float) -> Window:
        """Let it run for a while; return what it did after it had settled."""
        with self.awake():
            time.sleep(settle_s)
            end = self.measure()
            time.sleep(seconds)
            return end()

    def measure(self) -> Callable[[], Window]:
        """Begin a window; return the function that ends it and returns what was done in it."""
        begun_s, cpu_s = time.monotonic(), self.cpu_s()
        return lambda: self._window(begun_s, cpu_s)

    def _window(self, begun_s: float, cpu_s: float) -> Window:
        ended_s, spent_s = time.monotonic(), self.cpu_s() - cpu_s
        time.sleep(1.5)  # until the probe has written a reading
        readings = [one for one in self._readings() if begun_s <= one["at"] <= ended_s]
        listings = Counter(readings[-1]["listings"])
        listings.subtract(readings[0]["listings"])
        read_s = readings[-1]["at"] - readings[0]["at"]
        lags_ms = [lag for one in readings[1:] for lag in one["lags"]]
        return Window(read_s, spent_s / (ended_s - begun_s), lags_ms, listings)

    def _processes(self) -> list[psutil.Process]:
        return self._guard.children(recursive=True)

    def _running(self) -> int:
        counts = [one["tasks"] for one in self._readings() if "tasks" in one]
        return counts[-1] if counts else 0

    def _readings(self) -> list[dict[str, Any]]:
        if not self.home.readings.exists():
            return []
        lines = self.home.readings.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]


def allow_open_files(number: int) -> None:
    """Allow this process and its children more open files: a triggerer opens a log per trigger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < number:
        raise EmbeddedError(f"{number} open files are needed, {hard} are allowed: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number), hard))
