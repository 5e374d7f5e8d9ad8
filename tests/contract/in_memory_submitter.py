"""A submitter whose drivers are threads of this process."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import count

from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen


@dataclass
class InMemoryDriver:
    """One driver: a job that is given ``say`` and whether it was asked to end."""

    lines: list[Entry] = field(default_factory=list)
    exit_code: int | None = None
    asked_to_end: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class Cluster:
    """What outlives the submitter: the drivers by their number."""

    def __init__(self):
        self.drivers = {}
        self.numbers = count(1)


class InMemorySubmitter:
    """Runs ``job(say, asked_to_end)`` in a thread; its result is the exit code.

    :param job: the job. What it says is a line of output, or a fact.
    :param outlives_task: whether its drivers count as running elsewhere.
    :param cluster: where its drivers run; a second submitter over it is a later try's.
    """

    name = "in_memory"

    def __init__(self, job, cluster=None, *, outlives_task=False):
        self.outlives_task = outlives_task
        self._job = job
        self._cluster = cluster or Cluster()
        self._read = 0

    def submit(self, started, echo=print):
        number, driver = next(self._cluster.numbers), InMemoryDriver()
        handle = Handle(self.name, f"driver {number}", {"number": number})
        started(handle)
        self._cluster.drivers[number] = driver
        threading.Thread(target=self._run, args=(driver,), daemon=True).start()
        return handle

    def stand_by(self, echo):
        """Start nothing before the grant: a thread is there at once."""

    def offer(self, payload, lease_ttl_s):
        """Run the same job as without standby."""

    def give_up(self):
        """End nothing: nothing was started."""

    def feed(self, extensions):
        """Take no extensions: its drivers live without them."""

    def poll(self, handle):
        driver = self._cluster.drivers.get(handle.facts.get("number"))
        if driver is None:
            return Unseen(f"{handle} is not of this cluster")
        if not driver.over.is_set():
            return Running()
        return Ended(driver.exit_code)

    def read(self, handle, wait_s):
        driver = self._cluster.drivers[handle.facts["number"]]
        over = driver.over.is_set()
        lines = driver.lines[self._read :]
        self._read += len(lines)
        if not lines and not over:
            time.sleep(min(wait_s, 0.01))
        return None if over and not lines else lines

    def end(self, handle):
        driver = self._cluster.drivers.get(handle.facts.get("number"))
        if driver is not None:
            driver.asked_to_end.set()
            driver.over.wait(10)

    def _run(self, driver):
        def say(line):
            driver.lines.append(line if isinstance(line, dict) else f"{line}\n")

        try:
            driver.exit_code = self._job(say, driver.asked_to_end)
        finally:
            driver.over.set()


def failing(lines):
    """Return a submitter whose driver logs some lines, and fails."""

    def job(say, _):
        for line in lines:
            say(line)
        return 1

    return InMemorySubmitter(job)
