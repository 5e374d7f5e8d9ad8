"""Drivers that a spooler starts: a process of any host that polls a shared folder for jobs."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen
from airflow_occ_provider.submitters.place import Place


class SpoolPlace(Place):
    """Runs drivers by a spooler.

    :param root: the folder that the spooler polls.
    """

    name = "spool"

    def __init__(self, root):
        self._root, self._job = Path(root), None

    def start(self, runner, arguments):
        """Put a job into the folder."""
        self._job = hashlib.sha256(arguments[0].encode()).hexdigest()[:16]
        draft = self._root / f"{self._job}.draft"
        draft.write_text(json.dumps([runner, *arguments]))
        draft.rename(draft.with_suffix(".job"))

    def identify(self, hello):
        """Return the driver's job, by which a later process finds it."""
        return f"job {self._job} in {self._root}", {"root": str(self._root), "job": self._job}

    def state(self, handle):
        """Return what the spooler says: it names an exit code once no process is alive."""
        file = self._root / f"{handle.facts.get('job')}.exit"
        if file.exists():
            return Ended(int(file.read_text()))
        return Running() if file.with_suffix(".running").exists() else Unseen("the job is not there")

    def kill(self, handle):
        """Have the spooler end the job."""
        job = handle.facts.get("job") if handle else self._job
        with suppress(OSError):  # the attempt's folder ends the driver in any case
            (self._root / f"{job}.cancel").touch()


def place_of_task(task, launch):
    """Return the spooler that the master of the task's connection names."""
    return SpoolPlace(task.master.removeprefix("spool://"))


def place_of_handle(handle):
    """Return the spooler of a driver that another process has started."""
    return SpoolPlace(handle.facts.get("root", "/"))
