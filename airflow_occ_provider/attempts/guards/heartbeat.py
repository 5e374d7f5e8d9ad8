"""The guard of a running driver's heartbeat, which logs the heartbeat's state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_occ_provider.attempts.guards.heartbeat_alarm import Alarm, WriteState
from airflow_occ_provider.attempts.guards.table_views import TableViews
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.snapshot import Snapshot

_CHECKS_PER_INTERVAL = 4
_LOG_LAG_S = 0.5
_LEAST_PERIOD_S = 1.0
_END_TIMEOUT_S = 2.0


@dataclass(slots=True)
class HeartbeatAlarm:
    """Watch the heartbeat of a driver's write in a thread, within a ``with`` block.

    It logs when the heartbeat is late or dead and when it ticks again, and stops the driver if
    ``heartbeat_alarm`` decides so. A storage that does not answer is logged once, and proves nothing.

    :param views: of the driver's table.
    :param log_follows: whether the log is fed while a check waits; else it is fed between two checks.
    :param on_margin: called after each check with the seconds until Hudi counts the write as dead,
        and with the whole tolerance when the block has ended.
    """

    views: TableViews
    log: DriverLog
    rule: HeartbeatRule
    logger: Any
    on_margin: Callable[[float], None] = lambda _: None
    log_follows: bool = True
    _alarm: Alarm = field(init=False)
    _thread: threading.Thread = field(init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _unanswered: bool = field(default=False, init=False)
    _rollbacks: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._alarm = Alarm(self.rule)
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat-alarm")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_END_TIMEOUT_S)
        self.on_margin(self.rule.interval_ms * self.rule.tolerable_misses / 1000)

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any; known without a request."""
        return self._alarm.stop

    def _run(self) -> None:
        period_s = max(_LEAST_PERIOD_S, self.rule.interval_ms / 1000 / _CHECKS_PER_INTERVAL)
        while not self._ended.wait(period_s):
            if self.stop is None:
                self.check()

    def check(self) -> None:
        """Check once, and log what has changed."""
        try:
            state, now_ms, now_s = self._write_state()
        except Exception as error:  # noqa: BLE001 - an alarm is no reason for a task to fail
            if not self._unanswered:
                name = type(error).__name__
                self.logger.warning(
                    "The driver's heartbeat cannot be looked at, which says nothing of the driver: %s",
                    error.message if isinstance(error, TableUnreadableError) else f"{name}: {error}",
                )
            self._unanswered = True
            return
        self._unanswered = False
        if self._ended.is_set():
            return
        for level, text in self._alarm.take(state, now_ms, now_s):
            self.logger.log(level, text)
        if self._alarm.margin_ms is not None:
            self.on_margin(self._alarm.margin_ms / 1000)

    def _write_state(self) -> tuple[WriteState | None, int, float]:
        """Return the state of the driver's write, and when it was observed."""
        own = self.log.own_instants
        if not own:
            return None, round(time.time() * 1000), time.monotonic()
        view = self.views.current()
        state = self._current(view.snapshot, own, view.ticks) if view.snapshot else None
        return state, view.now_ms, view.now_s

    def _current(
        self, snapshot: Snapshot, own: tuple[str, ...], ticks: Mapping[str, int]
    ) -> WriteState | None:
        """Return the driver's youngest write in this table, unless it is over.

        A write that lost a conflict is over, too: Hudi abandons it, and may retry as a new instant.
        """
        for instant in reversed(own):
            found, rollback = snapshot.timeline.find(instant), snapshot.rollback_of(instant)
            if found or rollback:  # else the write is in another table of the job
                is_over = found and (found.completed or not found.is_write)
                if is_over or self.log.instants.conflict_of(instant):
                    return None
                foreign = rollback and not self._has_requested(rollback.time)
                return WriteState(
                    instant,
                    ticks.get(instant),
                    rollback.time if rollback and foreign else None,
                    instant in self.log.instants.dead_timers,
                    instant in self.log.instants.committing,
                )
        return None

    def _has_requested(self, rollback: str) -> bool:
        """Whether the driver requested a rollback; its log shows that later than the table."""
        if self.log_follows and rollback not in self.log.instants.requested:
            self._ended.wait(_LOG_LAG_S)
        if rollback in self.log.instants.requested:
            return True
        if self.log_follows:
            return False
        is_new = rollback not in self._rollbacks
        self._rollbacks.add(rollback)
        return is_new
