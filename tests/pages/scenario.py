"""Four tasks that write one table, and what its page has to show of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.task.table_link import table_key
from tests.faults.processes import drivers, send, victims
from tests.pages.browser import Screen
from tests.pages.rig import JOB, SignedInAirflow, wait_for
from tests.support.writers import commit_lock_held, inflight
from tests.system.rivals import open_queue

_POLL_S = 0.1


class Scenario:
    """A conflict, a wait and a death, on the page of one table.

    :param screens: by colour scheme; the first one watches, both are photographed.
    """

    def __init__(
        self,
        airflow: SignedInAirflow,
        stack: EmbeddedStack,
        folder: Path,
        screens: Mapping[str, Screen],
        pictures: Path,
    ) -> None:
        self.delays_s: dict[str, float] = {}
        self.load_run = ""
        self._table, self._gate = folder / "lake" / "trips", folder / "gate"
        self.key = table_key(str(self._table))
        self._airflow, self._stack = airflow, stack
        self._screens, self._pictures = screens, pictures
        self._screen = next(iter(screens.values()))
        self._gate.mkdir()

    def play(self) -> None:
        """Play it; each fact is noted with the seconds until the page showed it."""
        self.load_run = self._start("load")
        self._open_by_the_tasks_link()
        self._seen("the first commit", lambda: self._committed(1), "{0} UPSERT: completed")
        self._begin("backfill")
        self._begin("correct")
        with commit_lock_held(self._stack.zookeeper.hosts):
            self._release("backfill", "correct")
            backfill, correct = self._seen(
                "the conflict and its rival", self._two_inflight, "Will lose to {0}", "Will lose to {1}"
            )
            self._start("delete")
            self._seen("the waiting writer", self._delete_waits, "waits for backfill_trips")
            self._photograph("conflict")
            self._kill("backfill")
            self._seen("the dead writer", lambda: self._expired(backfill), "✕ dead")
            self._photograph("dead")
        self._seen("the second commit", lambda: self._committed(2), f"{correct} UPSERT: completed")
        self._release("delete")
        self._seen("the third commit", lambda: self._committed(3), "{2} UPSERT: completed")
        self._screen.wait_for(f"{backfill} unknown: rolled back", "backfill_trips / backfill")
        self._photograph("after")
        self._open("/plugin/hudi")
        self._screen.wait_for("Writers, queues and dead writers", self.key)
        self._photograph("tables")

    def _open_by_the_tasks_link(self) -> None:
        """Open the page that the running task links to, once the table is there."""
        path = f"/dags/load_trips/dagRuns/{self.load_run}/taskInstances/load"

        def link() -> Any:
            links = self._airflow.call("GET", f"{path}/links")["extra_links"]
            return links.get("Hudi table")

        found = wait_for("the link", link)
        assert self._airflow.call("GET", path)["state"] == "running", "the link came after the task"
        self._open(found)
        for one in self._screens.values():
            one.frame().click("nav >> text=15m")

    def _open(self, path: str) -> None:
        for one in self._screens.values():
            one.open(path)

    def _start(self, task: str) -> str:
        conf = {"job": str(JOB), "table": str(self._table), "gate": str(self._gate)}
        return self._airflow.trigger(f"{task}_trips", conf)

    def _begin(self, task: str) -> None:
        """Start a task, and wait until its driver has an instant."""
        self._start(task)
        wait_for(task, (self._gate / f"{task}.begun").exists)

    def _release(self, *tasks: str) -> None:
        for one in tasks:
            (self._gate / f"{one}.go").touch()

    def _seen(self, what: str, fact: Callable[[], Any], *words: str) -> Any:
        """Wait for a fact, then for the words on the page, and note the time between them."""
        found = wait_for(what, fact, _POLL_S)
        at_s = time.time()
        shown_s = self._screen.wait_for(*(one.format(*found) for one in words))
        self.delays_s[what] = shown_s - at_s
        print(f"{what}: shown {shown_s - at_s:.1f} s after the fact", flush=True)
        return found

    def _committed(self, number: int) -> Any:
        times = [
            one.time
            for one in HudiTable(str(self._table)).snapshot(missing_ok=True).timeline.completed_writes()
        ]
        return times if len(times) >= number else None

    def _two_inflight(self) -> Any:
        times = inflight(self._table)
        return times if len(times) == 2 else None

    def _delete_waits(self) -> Any:
        with closing(open_queue(self._stack)) as queue:
            found = [one.request.owner.path for one in queue.requests(str(self._table))]
        return [one for one in found if one[0] == "delete_trips"]

    def _expired(self, instant: str) -> Any:
        """Whether a heartbeat has expired by Hudi's defaults."""
        beat_s = (self._table / ".hoodie" / ".heartbeat" / instant).stat().st_mtime
        return time.time() - beat_s > HeartbeatRule().tolerance_ms / 1000 and [instant]

    def _kill(self, task: str) -> None:
        """Kill a driver with the processes of its task."""
        (driver,) = [one for one in drivers(self._table) if task in " ".join(one.cmdline())]
        send(victims("group", driver), signal.SIGKILL)

    def _photograph(self, name: str) -> None:
        for scheme, one in self._screens.items():
            one.wait_for("Made ")
            one.photograph(self._pictures / f"pages_{name}_{scheme}.png")
