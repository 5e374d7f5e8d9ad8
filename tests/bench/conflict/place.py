"""Where one run takes place: its table, its slots, and the records of its drivers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.conflict.events import Event, Job

JOB = Path(__file__).parent / "job.py"
MEMORY = "1g"
DRIVER = ("--master", "local[2]", "--driver-memory", MEMORY)
# No code is compiled for a few rows.
CONF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
TIMES_VARIABLE = "BENCH_TIMES"


@dataclass(frozen=True, slots=True)
class Place:
    """One run's folder and what its writers share.

    :param folder: of the run.
    :param table: base path.
    :param name: of the run.
    :param hosts: of the ZooKeeper that holds Hudi's lock and the queue.
    :param environment: in which ``spark-submit`` is the timed one, see ``timed_submit``.
    :param slots: held while a driver may run; shared by all processes.
    :param began_s: seconds since the epoch at which the run began.
    """

    folder: Path
    table: str
    name: str
    hosts: str
    environment: Mapping[str, str]
    slots: AbstractContextManager[object]
    began_s: float

    @property
    def now_s(self) -> float:
        """The seconds since the run began."""
        return time.time() - self.began_s

    def arguments(self, job: Job) -> list[str]:
        """Return the arguments of a writer's PySpark job."""
        return arguments(self.table, job)

    @property
    def words(self) -> list[str]:
        """The words of Spark's command before the job."""
        return ["spark-submit", *DRIVER, *(f"--conf={key}={value}" for key, value in CONF.items())]

    def times(self, job: Job, number: int) -> Path:
        """Return the file in which the drivers of one try record their times."""
        return self.folder / f"{job.writer}-{number}.times"

    def log(self, job: Job, number: int) -> Path:
        """Return the file of one try's log."""
        return self.folder / f"{job.writer}-{number}.log"

    def output(self, writer: str) -> Path:
        """Return the file of what a writer's process prints."""
        return self.folder / f"{writer}.out"

    def keep(self, event: Event) -> None:
        """Record an event in its writer's file."""
        given = asdict(event)
        rounded = {key: round(v, 3) if isinstance(v, float) else v for key, v in given.items()}
        with (self.folder / f"{event.writer}.events").open("a") as file:
            file.write(json.dumps(rounded) + "\n")

    def events(self) -> list[Event]:
        """Return the events of all writers, in the order of their starts."""
        files = self.folder.glob("*.events")
        lines = (line for path in files for line in path.read_text().splitlines())
        return sorted((Event(**json.loads(line)) for line in lines), key=lambda one: one.start_s)

    def spans(self, times: Path) -> Iterator[tuple[float, float]]:
        """Yield the start and end of each driver that one try has started.

        The end of one that was killed together with its wrapper is now.
        """
        start_s: float | None = None
        for line in times.read_text().splitlines() if times.exists() else ():
            step, at_s = line.split()[0], float(line.split()[1]) - self.began_s
            if step == "ended" and start_s is not None:
                yield start_s, at_s
            start_s = at_s if step == "started" else None
        if start_s is not None:
            yield start_s, self.now_s


def arguments(table: str, job: Job) -> list[str]:
    """Return the arguments of a writer's PySpark job."""
    return [table, job.writer, ",".join(job.partitions), str(job.pause_s)]


def timed_submit(folder: Path, real: str) -> Path:
    """Write a ``spark-submit`` that records when the real one starts and ends."""
    folder.mkdir(parents=True)
    path = folder / "spark-submit"
    record = f'>> "${TIMES_VARIABLE}"'
    path.write_text(
        "#!/bin/bash\n"
        f'echo "started $(date +%s.%N)" {record}\n'
        f'"{real}" "$@"\ncode=$?\n'
        f'echo "ended $(date +%s.%N)" {record}\n'
        "exit $code\n"
    )
    path.chmod(0o755)
    return path
