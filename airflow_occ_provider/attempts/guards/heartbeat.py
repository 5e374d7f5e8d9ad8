"""The guard of a running driver's heartbeat, which logs the heartbeat's state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.attempts.guards.heartbeat_alarm import Alarm, HeartbeatState
from airflow_occ_provider.attempts.guards.table_guards import TableView
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.snapshot import Snapshot

_CHECKS_PER_INTERVAL = 4
_LOG_LAG_S = 2.0  # facts are read every half second
_LEAST_PERIOD_S = 1.0


@dataclass(slots=True)
class HeartbeatAlarm:
    """Watches the heartbeat of a driver's write.

    It logs when the heartbeat is late or dead and when it ticks again, and stops the driver if
    ``heartbeat_alarm`` decides so.

    :param on_margin: called after each look with the seconds until Hudi counts the write as dead,
        and with the whole tolerance at its end.
    :param log_follows: whether the log is fed while a look waits; else it is fed between two looks.
    """

    log: DriverLog
    rule: HeartbeatRule
    logger: Any
    on_margin: Callable[[float], None] = lambda _: None
    log_follows: bool = True
    _alarm: Alarm = field(init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _reporting: threading.Lock = field(default_factory=threading.Lock, init=False)
    _rollbacks: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._alarm = Alarm(self.rule)

    @property
    def danger(self) -> str:
        """What it watches, in a few words."""
        return "heartbeat"

    @property
    def period_s(self) -> float:
        """The longest time between two looks, in seconds."""
        return max(_LEAST_PERIOD_S, self.rule.interval_ms / 1000 / _CHECKS_PER_INTERVAL)

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any; known without a request."""
        return self._alarm.stop

    def look(self, view: TableView) -> None:
        """Look once, and log what has changed."""
        instants = self.log.own_instants
        state = (
            self._current(view.snapshot, instants, view.ticks) if view.snapshot and instants else None
        )
        with self._reporting:
            if self._ended.is_set():
                return
            for level, text in self._alarm.take(state, view.now_ms, view.now_s):
                self.logger.log(level, text)
            if self._alarm.margin_ms is not None:
                self.on_margin(self._alarm.margin_ms / 1000)

    def end(self) -> None:
        """Log and report nothing more but the whole tolerance."""
        self._ended.set()
        with self._reporting:
            self.on_margin(self.rule.tolerance_ms / 1000)

    def _current(
        self, snapshot: Snapshot, instants: tuple[str, ...], ticks: Mapping[str, int]
    ) -> HeartbeatState | None:
        """Return the driver's youngest write in this table, unless it is over.

        A write that lost a conflict is over, too: Hudi abandons it, and may retry as a new instant.
        """
        for instant in reversed(instants):
            listed = snapshot.timeline.find(instant)
            rollback = snapshot.rollback_of(instant)
            if listed or rollback:  # else the write is in another table of the job
                is_over = listed and (listed.completed or not listed.is_write)
                if is_over or instant in self.log.instants.conflicts:
                    return None
                foreign = rollback and not self._has_requested(rollback.time)
                return HeartbeatState(
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
