"""The guard that sees, while a driver runs, that Hudi will refuse its commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.conflict.verdict import Conflict, certain_loss
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.conflicts import Setup, verdicts
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

PERIOD_S = 10.0
RETRIES_IN_JOB = "hoodie.write.num.retries.on.conflict.failures"
_END_TIMEOUT_S = 2.0
_MOST_NAMED = 3


class EarlyStop(StrEnum):
    """What happens once it is certain that Hudi will refuse a running write."""

    OFF = "off"
    OBSERVE = "observe"
    """It is logged, and compared with what Hudi then does."""
    ACT = "act"
    """The driver is ended."""


def retries_in_job(options: Mapping[str, str]) -> bool:
    """Whether Hudi writes again after a conflict, so that none ends the job."""
    return options.get(RETRIES_IN_JOB, "0").strip() not in ("", "0")


@dataclass(slots=True)
class EarlyStopGuard:
    """Compare a driver's write with completed commits, in a thread of a block.

    Only a rival that has completed counts: a pending one may still fail. A storage that does not answer
    proves nothing. The first finding is final.

    :param table: the driver's.
    :param mode: whether a certain loss ends the driver.
    :param strategy: the writers' conflict resolution strategy, if it is known.
    :param period_s: seconds between two looks.
    """

    table: HudiTable
    log: DriverLog
    mode: EarlyStop
    strategy: Strategy | None
    logger: Any
    period_s: float = PERIOD_S
    found: Stop | None = field(default=None, init=False)
    """The evidence that Hudi will refuse the write, as soon as there is some."""
    _found_s: float = field(default=0.0, init=False)
    _snapshot: Snapshot | None = field(default=None, init=False)
    _before: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        if self.mode is not EarlyStop.OFF:
            self._thread = threading.Thread(target=self._run, daemon=True, name="early-stop")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join(_END_TIMEOUT_S)

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any; known without a request."""
        return self.found if self.mode is EarlyStop.ACT else None

    def compare(self, outcome: Outcome) -> None:
        """Log what Hudi did with a write that was found to be lost.

        :param outcome: of the attempt, by the table.
        """
        if self.found and self.mode is EarlyStop.OBSERVE:
            seconds = time.monotonic() - self._found_s
            self.logger.info(
                "early_stop='act' would have ended the driver %.0f s earlier; its outcome is %s.",
                seconds,
                outcome.value,
            )

    def check(self) -> None:
        """Look once, and log a certain loss."""
        try:
            conflict = self._loss()
        except TableUnreadableError:
            return  # the heartbeat's guard tells it
        except Exception as error:  # noqa: BLE001 - a guard is no reason for a task to fail
            self.logger.warning("Conflicts cannot be looked for: %s: %s", type(error).__name__, error)
            return
        if conflict and not self._ended.is_set():
            self._found_s = time.monotonic()
            self.found = _stop(self.log.own_instants[-1], conflict)
            self.logger.warning("%s.", self.found.line)

    def _run(self) -> None:
        while not self._ended.wait(self.period_s):
            if self.found is None:
                self.check()

    def _loss(self) -> Conflict | None:
        """Return the certain conflict of the driver's youngest write with a completed rival."""
        own = self.log.own_instants
        if not own or self.log.instants.conflict_of(own[-1]):
            return None
        self._snapshot = snapshot = self.table.snapshot(self._snapshot, missing_ok=True)
        ours = snapshot.timeline.find(own[-1])
        if ours is None or ours.completed or not self._has_new_commits(snapshot, ours):
            return None
        verdict = verdicts(self.table, snapshot, Setup(self.strategy), only=ours.time).get(ours.time)
        return certain_loss(verdict) if verdict else None

    def _has_new_commits(self, snapshot: Snapshot, ours: Instant) -> bool:
        """Whether any write completed since ours was seen first; else there is nothing to read."""
        done = frozenset(one.time for one in snapshot.timeline.completed_writes())
        stamped = any(
            (one.completion_stamp or "") > ours.time for one in snapshot.timeline.completed_writes()
        )
        return stamped or not done <= self._before.setdefault(ours.time, done)


def _stop(own: str, conflict: Conflict) -> Stop:
    rival, groups = conflict.rival.instant, sorted(conflict.file_groups)
    named = ", ".join("/".join(group).lstrip("/") for group in groups[:_MOST_NAMED])
    more = f" and {len(groups) - _MOST_NAMED} more" if len(groups) > _MOST_NAMED else ""
    line = (
        f"{own} can no longer commit: {rival.time} has completed since it began, and wrote "
        f"{len(groups)} of its file groups ({named}{more})"
    )
    return Stop(Outcome.COMMIT_CONFLICT, line, rival.time)
