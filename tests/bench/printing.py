"""What a job that prints 50 MB/s delays: ``python -m tests.bench.printing``.

Tasks of one real Airflow run one job in pairs, silent and printing, the order changing: by
``spark-submit`` in client mode, and by a BashOperator. Measured by the clock of this host are the time
from a report of one of Hudi's loggers in the driver until the attempt has it, and that from the job's
last line until the attempt has seen the driver's end. A silent driver in client mode needs milliseconds
for both, since its log wakes the attempt: there the ratio is that to the attempt's own period. A
BashOperator that prints alone shows what its log takes, and one whose output is not logged what the
machine gives. ``CHECK=1`` makes it a test.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_occ_provider.attempts.driver import TICK_S
from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.bench.harness import Goal, conclude
from tests.bench.overhead import LOCK_BASE_PATH
from tests.jobs.printing_job import LINE, MARK, REPORTED
from tests.services.airflow import EmbeddedAirflow
from tests.support.observed import until

JOB = Path(__file__).parents[1] / "jobs" / "printing_job.py"
DAGS = Path(__file__).parent / "printing_dags"
CLIENT, VIA, ALONE, UNLOGGED = "client", "via", "alone", "unlogged"
MASTER = "local[1]"
MOST_DELAYED = 2
LEAST_PRINTED = 0.8


def note_attempt(recorder: Any, times: str) -> None:
    """Have attempts note when they get a report, and when they have seen the end.

    :param recorder: the class through which an attempt takes both.
    :param times: path of the file for the notes.
    """
    feed, ended = recorder.feed, recorder.ended

    def note(line: str) -> None:
        with Path(times).open("a") as file:
            file.write(f"{line} {time.time():.6f}\n")

    def noted_feed(self: Any, entry: Any) -> None:
        if not isinstance(entry, str):
            _, is_report, reported_at = str(entry.get("message", "")).partition(REPORTED)
            if is_report:
                note(f"report {reported_at}")
        feed(self, entry)

    def noted_ended(self: Any, *arguments: Any, **more: Any) -> None:
        note("ended")
        ended(self, *arguments, **more)

    recorder.feed, recorder.ended = noted_feed, noted_ended


@dataclass(frozen=True)
class Printing:
    """What one task was seen to do.

    :param megabytes: that its job printed.
    :param seconds: in which it did so.
    :param logged: megabytes of it in the task's log.
    :param delays_s: from each report to the attempt.
    :param end_s: from the job's last line until the attempt has seen the end.
    """

    megabytes: float
    seconds: float
    logged: float
    delays_s: list[float] = field(default_factory=list)
    end_s: float = 0.0

    @classmethod
    def of(cls, times: Path, log: Path) -> Printing:
        """Read the notes of a task and its log."""
        steps = [line.split() for line in times.read_text().splitlines()]
        ((printed_at, megabytes, seconds),) = (
            map(float, step[1:]) for step in steps if step[0] == "printed"
        )
        delays_s = [float(step[2]) - float(step[1]) for step in steps if step[0] == "report"]
        end_s = next((float(step[1]) - printed_at for step in steps if step[0] == "ended"), 0.0)
        with log.open("rb") as lines:
            logged = sum(line.count(MARK) for line in lines) * len(LINE) / 1e6
        return cls(megabytes, seconds, logged, delays_s, end_s)

    def __str__(self) -> str:
        delays = ""
        if self.delays_s:
            delays = (
                f"{statistics.median(self.delays_s):>8.2f} s{max(self.delays_s):>8.2f} s"
                f"{self.end_s:>8.2f} s of {len(self.delays_s)} reports"
            )
        return f"{self.megabytes / self.seconds:>8.1f} MB/s{self.logged:>8.1f} MB logged{delays}"


@contextmanager
def airflow(folder: Path, stack: EmbeddedStack) -> Iterator[EmbeddedAirflow]:
    """Start an Airflow with the jobs' DAGs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), stack.environment["PATH"]])
    with EmbeddedAirflow(folder, DAGS, stack.environment, {"PATH": path}) as running:
        running.add_connection("spark_default", conn_type="spark", host=MASTER)
        running.add_connection(
            "hudi_lock_default",
            conn_type="hudi_zookeeper_lock",
            host=stack.zookeeper.hosts,
            extra={"base_path": LOCK_BASE_PATH},
        )
        names = (CLIENT, VIA, ALONE, UNLOGGED)
        until(lambda: all(map(running.has_dag, names)), "the DAGs")
        yield running


def run(
    running: EmbeddedAirflow, folder: Path, name: str, amount: Mapping[str, float], number: int
) -> Printing:
    """Run one task."""
    times = folder / f"{name}-{number}-{amount['rate']:g}.times"
    conf = {"times": str(times), "table": str(folder / name), **amount}
    run_id = running.trigger(name, conf)
    state = running.end_of(name, run_id)
    (log,) = running.folder.glob(f"logs/dag_id={name}/run_id={run_id}/task_id=write/attempt=1.log")
    if state != "success":
        with log.open(errors="replace") as lines:
            raise RuntimeError("".join(line for line in lines if MARK.decode() not in line))
    printing = Printing.of(times, log)
    log.unlink()
    print(f"  {name:<8}{amount['rate']:>4g} MB/s wanted{printing}", flush=True)
    return printing


def compare(place: str, pairs: list[tuple[Printing, Printing]]) -> Iterator[Goal]:
    """Yield the goals of a place."""
    silent, printing = zip(*pairs, strict=True)
    for what, seconds in (("report to attempt", _delay), ("last line to end", _end)):
        base_s = max(seconds(silent), TICK_S)
        yield Goal(f"{place}: {what}, printing / silent", seconds(printing) / base_s, MOST_DELAYED)


def _delay(runs: Sequence[Printing]) -> float:
    return statistics.median(delay for one in runs for delay in one.delays_s)


def _end(runs: Sequence[Printing]) -> float:
    return statistics.median(one.end_s for one in runs)


def _rate(runs: Sequence[Printing]) -> float:
    return statistics.median(one.megabytes / one.seconds for one in runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=50, help="MB/s")
    arguments = parser.parse_args()
    amounts = [{"seconds": arguments.seconds, "rate": rate} for rate in (0.0, arguments.rate)]
    pairs: dict[str, list[tuple[Printing, Printing]]] = {CLIENT: [], VIA: []}
    alone: dict[str, list[Printing]] = {ALONE: [], UNLOGGED: []}
    with (
        tempfile.TemporaryDirectory(prefix="airflow_occ_printing_") as scratch,
        EmbeddedStack(Path(scratch) / "stack") as stack,
        airflow(Path(scratch) / "airflow", stack) as running,
    ):
        for number in range(arguments.rounds):
            for place, of_place in pairs.items():
                shift = number % 2
                runs = [
                    run(running, Path(scratch), place, amount, number)
                    for amount in (*amounts[shift:], *amounts[:shift])
                ]
                of_place.append((runs[-shift], runs[1 - shift]))
            for name, of_name in alone.items():
                of_name.append(run(running, Path(scratch), name, amounts[1], number))
    goals = [goal for place in pairs for goal in compare(place, pairs[place])]
    rates = {place: _rate([printing for _, printing in of_place]) for place, of_place in pairs.items()}
    unlogged, bash = _rate(alone[UNLOGGED]), _rate(alone[ALONE])
    return conclude(
        [
            *goals,
            Goal("client: printed / unlogged", rates[CLIENT] / unlogged, at_least=LEAST_PRINTED),
            Goal("via: printed / by a BashOperator alone", rates[VIA] / bash, at_least=LEAST_PRINTED),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
