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
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy, strategy_of
from airflow_occ_provider.hudi.conflict.verdict import Conflict, certain_loss
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


def why_off(options: Mapping[str, str]) -> str:
    """Return why a writer's options leave no certain verdict; empty if they do.

    :param options: of the driver. What a job sets in its own code is not among them.
    """
    if options.get(RETRIES_IN_JOB, "0").strip() not in ("", "0"):
        return f"with {RETRIES_IN_JOB} Hudi writes again after a conflict"
    named = options.get(STRATEGY_OPTION, "").strip()
    if named and strategy_of(options) is None:
        return f"the rules of {named} are not known"
    return ""


@dataclass(slots=True)
class EarlyStopGuard:
    """Compare a driver's write with completed commits while a block runs.

    Only a rival that completed after the write's workload profile was written counts: a pending one
    may still fail. A storage that does not answer proves nothing. The first finding is final.

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
    _judged: tuple[str, frozenset[str]] = field(default=("", frozenset()), init=False)
    _problem: str = field(default="", init=False)
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
        """Log what became of a write that was found to be lost.

        :param outcome: of the attempt, by the table.
        """
        if self.found:
            seconds = time.monotonic() - self._found_s
            self.logger.info(
                "%.0f s after early_stop found that %s: its outcome is %s.",
                seconds,
                self.found.line,
                outcome.value,
            )

    def check(self) -> None:
        """Look once, and log a certain loss."""
        own = self._own_write()
        if own is None:
            return
        try:
            conflict = self._loss(own)
        except Exception as error:  # noqa: BLE001 - a guard is no reason for a task to fail
            told = error.message if isinstance(error, TableUnreadableError) else str(error)
            self._log_once(f"{type(error).__name__}: {told}")
            return
        if conflict and own == self._own_write() and not self._ended.is_set():
            self._found_s, self.found = time.monotonic(), _stop(own, conflict)
            self.logger.warning("%s.", self.found.line)

    def _run(self) -> None:
        while not self._ended.wait(self.period_s):
            if self.found is None:
                self.check()

    def _own_write(self) -> str | None:
        """Return the driver's youngest write, unless its commit is under way or refused."""
        own, instants = self.log.own_instants, self.log.instants
        if not own or own[-1] in instants.committing or instants.conflict_of(own[-1]):
            return None
        return own[-1]

    def _loss(self, own: str) -> Conflict | None:
        """Return the certain conflict of a write with a completed rival.

        Without another commit since the last look there is nothing to read.
        """
        self._snapshot = snapshot = self.table.snapshot(self._snapshot, missing_ok=True)
        ours, done = snapshot.timeline.find(own), snapshot.timeline.completed_writes()
        judged = own, frozenset(one.time for one in done)
        if ours is None or ours.completed or judged == self._judged:
            return None
        verdict = verdicts(self.table, snapshot, Setup(self.strategy), only=own).get(own)
        profile_ms = snapshot.times(ours).inflight_ms
        if profile_ms is not None:  # else its profile is still to come
            self._judged = judged
        return certain_loss(verdict, profile_ms) if verdict else None

    def _log_once(self, problem: str) -> None:
        if problem != self._problem:
            self.logger.warning("early_stop cannot compare the write: %s", problem)
        self._problem = problem


def _stop(own: str, conflict: Conflict) -> Stop:
    rival, groups = conflict.rival.instant, sorted(conflict.file_groups)
    named = ", ".join("/".join(group).lstrip("/") for group in groups[:_MOST_NAMED])
    more = f" and {len(groups) - _MOST_NAMED} more" if len(groups) > _MOST_NAMED else ""
    line = (
        f"{own} can no longer commit: {rival.time} has completed since it began, and wrote "
        f"{len(groups)} of its file groups ({named}{more})"
    )
    return Stop(Outcome.COMMIT_CONFLICT, line, rival.time)
