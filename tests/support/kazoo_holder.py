"""A holder of kazoo's own lock, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path


class Holder:
    """A process that holds a lease, and what it has printed."""

    def __init__(self, kind: str, hosts: str, path: str) -> None:
        self.said: list[dict[str, object]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.real.lease_holder", kind, hosts, path],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_until_held(self) -> None:
        deadline = time.monotonic() + 30
        while not any(message["held"] for message in list(self.said)):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        self.process.stdout.close()

    def _read(self) -> None:
        for said in self.process.stdout:
            if said.endswith("\n"):
                self.said.append(json.loads(said))


@contextmanager
def holder(kind, hosts, path):
    holder = Holder(kind, hosts, path)
    try:
        holder.wait_until_held()
        yield holder
    finally:
        holder.end()
