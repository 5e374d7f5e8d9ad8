"""A spooler: starts the jobs of a folder, as ``python spooler.py FOLDER``, until its input is closed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PERIOD_S = 0.1


def end(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def spool(root, processes):
    """Start what is new, end what is cancelled, and say what has ended."""
    for job in root.glob("*.job"):
        job.rename(job.with_suffix(".running"))
        runner, *arguments = json.loads(job.with_suffix(".running").read_text())
        command = [sys.executable, runner.removeprefix("file://"), *arguments]
        processes[job] = subprocess.Popen(command, start_new_session=True)
    for job, process in list(processes.items()):
        if process.poll() is None and not job.with_suffix(".cancel").exists():
            continue
        job.with_suffix(".draft").write_text(str(end(process)))
        job.with_suffix(".draft").rename(job.with_suffix(".exit"))
        del processes[job]


if __name__ == "__main__":
    running = {}
    while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
        spool(Path(sys.argv[1]), running)
    for process in running.values():
        end(process)
