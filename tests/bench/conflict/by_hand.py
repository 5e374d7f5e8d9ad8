"""A writer as ``SparkSubmitOperator`` runs it, with options given by hand, and Airflow's retries."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_occ_provider.hudi.writer import early_detection
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.submitters.processes import end_processes
from tests.bench.conflict.arms import Arm
from tests.bench.conflict.events import Event, Job
from tests.bench.conflict.job import WRITE_BEGINS
from tests.bench.conflict.place import JOB, TIMES_VARIABLE, Place
from tests.bench.overhead import HOSTS_VARIABLE, hand_written_options

TRIES = 12
RETRIES_IN_JOB = "hoodie.write.num.retries.on.conflict.failures"
REPEATS = "Conflict found. Retrying again for attempt no"
# A retry delay that is tuned to the jobs: with Airflow's default of five minutes nothing would be
# wasted for long, and the makespan would be an hour.
FIRST_DELAY_S, LONGEST_DELAY_S = 2.0, 30.0


@dataclass(slots=True)
class Refusals:
    """Counts the writes that Hudi refuses and repeats within a driver, by the lines of its log."""

    count: int = 0
    seconds: float = 0.0
    _since_s: float | None = field(default=None)

    def feed(self, line: str, now_s: float) -> None:
        """Read a line as it appears."""
        if WRITE_BEGINS in line:
            self._since_s = now_s
        elif REPEATS in line and self._since_s is not None:
            self.count += 1
            self.seconds += now_s - self._since_s
            self._since_s = now_s


def options_of(arm: Arm, hosts: str) -> dict[str, str]:
    """Return the options that a careful user gives to the job by hand."""
    options = hand_written_options({HOSTS_VARIABLE: hosts})
    if arm.detects_early:
        options |= early_detection.choose(EarlyDetection.ON, "file", None).options
    if arm.in_job_retries:
        options[RETRIES_IN_JOB] = str(arm.in_job_retries)
    return options


def delays(rng: random.Random) -> Iterator[float]:
    """Yield the delay before each retry as Airflow computes it: doubled, with as much jitter."""
    for number in range(TRIES - 1):
        least_s = min(FIRST_DELAY_S * 2**number, LONGEST_DELAY_S / 2)
        yield rng.uniform(least_s, 2 * least_s)


def run_by_hand(place: Place, job: Job, arm: Arm, seed: int) -> None:
    """Run a writer until it commits or its retries are used up."""
    waits = delays(random.Random(f"{seed} {job.writer}"))
    for number in range(1, TRIES + 1):
        with place.slots:
            event = _drive(place, job, arm, number)
        place.keep(event)
        if event.committed or number == TRIES:
            return
        time.sleep(next(waits))


def _drive(place: Place, job: Job, arm: Arm, number: int) -> Event:
    options = json.dumps(options_of(arm, place.hosts))
    command = [*place.words, str(JOB), *place.arguments(job), options]
    times = place.times(job, number)
    driver = subprocess.Popen(
        command,
        env={**os.environ, **place.environment, TIMES_VARIABLE: str(times)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    refusals = Refusals()
    try:
        with place.log(job, number).open("w") as log:
            for line in _lines(driver):
                refusals.feed(line, place.now_s)
                log.write(line)
        code = driver.wait()
    finally:
        end_processes("", driver.pid)
    ((start_s, end_s),) = place.spans(times)
    outcome = "committed" if code == 0 else outcome_of(place.log(job, number).read_text())
    return Event(
        job.writer, number, start_s, end_s, code == 0, refusals.count, refusals.seconds, outcome
    )


def outcome_of(log: str) -> str:
    """Return what a driver that failed came to, in a word, by its log."""
    for outcome, sign in (
        ("early_conflict", "HoodieEarlyConflictDetectionException"),
        ("commit_conflict", "HoodieWriteConflictException"),
        ("lock_timeout", "HoodieLockException"),
    ):
        if sign in log:
            return outcome
    return "job_error"


def _lines(driver: subprocess.Popen[str]) -> Iterable[str]:
    return driver.stdout or ()
