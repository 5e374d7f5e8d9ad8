"""Start and stop a one-node Kubernetes, and run commands inside its namespaces.

Nothing outside of the namespaces is changed, and nothing of it can be reached from outside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from airflow_occ_provider.embedded.process import Server
from tests.k8s.cluster.build import built

ROOT = Path(__file__).parents[3]
START_S = 180
NAMESPACES = ("--mount", "--net", "--pid")


class OneNode:
    """A cluster during a ``with`` block. It needs root.

    :param folder: folder of its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: Server | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        program = [sys.executable, "-m", "tests.k8s.cluster.node", str(built()), str(self.folder)]
        command = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", *program]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._server = Server("Kubernetes", command, environment, self.folder / "node.log")
        self._server.wait_until((self.folder / "ready").exists, START_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            first = self.first_process()
            if first:  # with it, all of its namespace ends
                with suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
            self._server.stop()
        for left in sorted(Path("/sys/fs/cgroup").glob("*/k8s.io/*"), reverse=True):
            with suppress(OSError):  # another cluster's
                left.rmdir()
        for left in Path("/sys/fs/cgroup").glob("*/k8s.io"):
            with suppress(OSError):
                left.rmdir()

    def first_process(self) -> int | None:
        """The id of the first process of its namespace, as seen from outside."""
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                (ids,) = (line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
                if ids[1:] == ["1"] and str(self.folder) in process.cmdline():
                    return int(process.pid)
        return None

    def inside(self, *command: str) -> list[str]:
        """Return a command that runs another one inside."""
        first = str(self.first_process())
        return ["nsenter", "--target", first, *NAMESPACES, f"--wdns={ROOT}", "--", *command]

    def run(self, *command: str, **environment: str) -> int:
        """Run a command inside; return its exit code."""
        given = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig"), **environment}
        return subprocess.run(self.inside(*command), env=given, check=False).returncode
