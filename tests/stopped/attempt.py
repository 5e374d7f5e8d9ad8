"""The attempt of each trial: it extends a lease, and answers the driver's ticks by that.

Each line of its input is a trial; ``end`` ends one. It prints when the lease ends, as the lock service
sees it: a rival is granted the table at that moment.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.place import Place

_STEP_S = 0.05


class Lease:
    """A lease whose end is known to the moment.

    :param ttl_s: for how long each renewal lasts.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._ends_s = float("inf")
        self.is_over = False

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:
        """Renew it, if it is not over."""
        now = time.monotonic()
        if self.is_over or now >= self._ends_s:
            self.is_over = True
            raise LeaseLostError("a rival holds the table")
        self._ends_s = now + self._ttl_s
        say(ends=time.time() + self._ends_s - time.monotonic())

    def sweep(self, ticket: Ticket) -> None:
        """Do nothing: there are no other requests."""


class Nowhere(Place):
    """The place of a driver that runs already."""

    name = "stopped"

    def start(self, runner: str, arguments: object) -> None:
        """Start nothing."""


def serve(trial: dict[str, object], ending: threading.Event) -> None:
    """Keep the lease of one trial, and answer its driver."""
    url, ttl_s = str(trial["folder"]), float(str(trial["ttl_s"]))
    facts = {"folder": url, "nonce": "n", "payload": "", "lease_ttl_s": ttl_s}
    handle = Handle("stopped", "driver n", facts)
    submitter = FolderDriver(AttemptFolder, Nowhere())
    try:
        with Keeper(Lease(ttl_s), Ticket("i", "i", 1, 1), round(ttl_s * 1000)) as keeper:  # type: ignore[arg-type]
            submitter.feed(keeper)
            say(held=True)
            while not (ending.is_set() or keeper.lost):
                submitter.read(handle, _STEP_S)
            ending.wait()
    except LeaseLostError:
        ending.wait()
    say(ended=True)


def say(**fields: object) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve the trials of the input."""
    ending = threading.Event()
    for line in sys.stdin:
        if line.strip() == "end":
            ending.set()
            continue
        ending = threading.Event()
        threading.Thread(target=serve, args=(json.loads(line), ending), daemon=True).start()


if __name__ == "__main__":
    main()
