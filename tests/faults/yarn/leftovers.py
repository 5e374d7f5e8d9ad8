"""What is left of drivers on the node, after all runs."""

from __future__ import annotations

import contextlib

import psutil


def processes_of(yarn):
    """Return the processes of containers that are alive: their folders are the NodeManager's."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(yarn.folder / "local") in process.cwd():
                found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
    return found


def print_staging(yarn):
    """Print for how many applications Spark has left its staging folder: only those that are killed."""
    left = [
        one for one in yarn.folder.glob("staging/**/.sparkStaging/application_*") if any(one.iterdir())
    ]
    print(f"Spark left the staging folders of {len(left)} applications")
