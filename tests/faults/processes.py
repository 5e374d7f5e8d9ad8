"""The processes of a task run: its drivers, their Python programs, the task and its supervisor."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path

import psutil

from airflow_occ_provider.driver.contract import GRANT, Grant, Hello
from airflow_occ_provider.storage.attempt_folder import HIDDEN

WRITES = "WRITES"
"""The environment variable by which a task of a rig tells what a driver on its host writes."""
FOLDER = re.compile(rf"file://(/.*)/{re.escape(HIDDEN)}/([^/]+)/[^/]+/[^/]+")


def drivers(table):
    """Return the running JVMs of drivers that write a table; a lazy clean of ours is one, too.

    Hudi's estimate of a record's size starts further JVMs below a driver, with its variables. Until a
    process that a JVM starts has become another program, it is a copy of the JVM: 89 were seen in 100 s.
    """
    copies = [
        process
        for process in _living("java")
        if str(table) in _tables(process) and _is_runner(process) and not _submits(process)
    ]
    pids = {process.pid for process in copies}
    return [process for process in copies if _parent(process) not in pids]


def granted(table):
    """Return those that may write: one that waits in its folder for a grant may not."""
    return [
        driver
        for driver in drivers(table)
        if all(_is_granted(driver, part) for part in _command(driver))
    ]


def programs(table):
    """Return the running Python programs of those drivers."""
    return [one for one in _living("python") if str(table) in _tables(one) and _is_runner(one)]


def end_all(table):
    """Kill the drivers that a run has left."""
    for one in (*drivers(table), *programs(table)):
        send((one,), signal.SIGKILL)


def victims(victim, driver):
    """Return the processes to kill: of the driver, or of the task that waits for it."""
    task = psutil.Process(driver.ppid())
    return {
        "jvm": [driver],
        "python": driver.children(recursive=True),
        "task": [task],
        "supervisor": [task.parent()],
        "group": [task.parent(), task, driver, *driver.children(recursive=True)],
    }[victim]


def send(processes, number):
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


class Census:
    """Counts the drivers of a table again and again, until it is closed."""

    def __init__(self, table):
        self.most = 0
        self.seen = set()
        self._table = table
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def close(self):
        assert self._thread.is_alive(), "the census ended early"
        self._closed.set()
        self._thread.join()

    def _count(self):
        while not self._closed.wait(0.3):
            living = granted(self._table)
            self.most = max(self.most, len(living))
            self.seen |= {one.pid for one in living}


def wait_until_gone(processes, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while any(is_living(one) for one in processes):
        assert time.monotonic() < deadline, f"{processes} still run"
        time.sleep(0.05)


def _parent(process):
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _living(name):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name().startswith(name) and is_living(process):
                found.append(process)
    return found


def is_living(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _command(process):
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _tables(process):
    """Return the tables of a driver: by its task's variable, or by the folder of its attempt."""
    folders = filter(None, map(FOLDER.fullmatch, _command(process)))
    tables = ["/".join(folder.group(1, 2)) for folder in folders]
    with contextlib.suppress(psutil.Error):
        tables.append(process.environ().get(WRITES))
    return tables


def _submits(process):
    """Return whether a process is a ``spark-submit`` whose driver runs elsewhere."""
    command = _command(process)
    return ("--deploy-mode", "cluster") in pairwise(command)


def _is_granted(driver, part):
    """Return whether a part of a driver's command is no folder, or one whose grant may be its own.

    One that is started after the granted driver has written its hello has another nonce.
    """
    if not FOLDER.fullmatch(part):
        return True
    folder = Path(part.removeprefix("file://"))
    with contextlib.suppress(FileNotFoundError, psutil.Error):
        grant = Grant.from_bytes((folder / GRANT).read_bytes())
        announced_s = (folder / Hello(grant.nonce).name).stat().st_mtime if grant else 0
        return driver.create_time() <= announced_s
    return False


def _is_runner(process):
    return any(Path(part).name == "run_job.py" for part in _command(process))
