"""Looks after the heartbeat of a running driver's own write, and says so in the task's log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.alarm import Alarm, Sight
from airflow_occ_provider.jobs.driver_log import DriverLog
from airflow_occ_provider.jobs.outcome import Stop
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_LOOKS_PER_INTERVAL = 4
_LOG_LAG_S = 0.5
_LEAST_PERIOD_S = 1.0
_END_TIMEOUT_S = 2.0


class HeartbeatAlarm:
    """Look at a driver's own write in a thread, for as long as a ``with`` block runs.

    It tells when the heartbeat is late or dead and when it ticks again, and ends the driver where
    ``jobs.alarm`` says so. A storage that does not answer is told once, and proves nothing.

    :param table: the table that the driver writes.
    :param log: the driver's, which another thread feeds.
    :param rule: how Hudi judges the driver's heartbeats.
    :param end: ends the driver; called again while the block runs on.
    :param logger: the task's log.
    :param on_margin: told, after each look, the seconds until Hudi counts the write as dead, and the
        whole tolerance when the block has ended.
    """

    def __init__(
        self,
        table: HudiTable,
        log: DriverLog,
        rule: HeartbeatRule,
        end: Callable[[], object],
        *,
        logger: Any,
        on_margin: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._table = table
        self._log = log
        self._rule = rule
        self._end = end
        self._logger = logger
        self._on_margin = on_margin
        self._alarm = Alarm(rule)
        self._snapshot: Snapshot | None = None
        self._unanswered = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat-alarm")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_END_TIMEOUT_S)
        self._on_margin(self._rule.interval_ms * self._rule.tolerable_misses / 1000)

    @property
    def stop(self) -> Stop | None:
        """Why it has ended the driver, if it has."""
        return self._alarm.stop

    def _run(self) -> None:
        period_s = max(_LEAST_PERIOD_S, self._rule.interval_ms / 1000 / _LOOKS_PER_INTERVAL)
        while not self._ended.wait(period_s):
            if self.stop is None:
                self.look()
            if self.stop:
                self._end()

    def look(self) -> None:
        """Look once, and tell what there is to tell."""
        try:
            sight, now_ms, now_s = self._sight()
        except TableUnreadableError as error:
            self._tell_unanswered(error.message)
            return
        except Exception as error:  # noqa: BLE001 - an alarm is no reason for a task to fail
            self._tell_unanswered(f"{type(error).__name__}: {error}")
            return
        self._unanswered = False
        if self._ended.is_set():
            return
        for level, text in self._alarm.take(sight, now_ms, now_s):
            self._logger.log(level, text)
        if self._alarm.margin_ms is not None:
            self._on_margin(self._alarm.margin_ms / 1000)

    def _sight(self) -> tuple[Sight | None, int, float]:
        """Look at the heartbeats, then at the timeline: who has completed meanwhile is not dead."""
        now_ms = round(time.time() * 1000)
        own = self._log.own_instants
        if not own:
            return None, now_ms, time.monotonic()
        snapshot = self._snapshot or self._table.snapshot(missing_ok=True)
        ticks, now_s = snapshot.heartbeats(), time.monotonic()
        if not snapshot.config.exists:
            return None, now_ms, now_s
        self._snapshot = self._table.snapshot(snapshot)
        return self._current(self._snapshot, own, ticks), now_ms, now_s

    def _current(
        self, snapshot: Snapshot, own: tuple[str, ...], ticks: Mapping[str, int]
    ) -> Sight | None:
        """Return the driver's youngest write in this table, unless it is done with it.

        One that lost a conflict is over, too: Hudi gives it up, and may write again under another.
        """
        for instant in reversed(own):
            found, rollback = snapshot.timeline.find(instant), snapshot.rollback_of(instant)
            if found or rollback:  # else it is in another table of the job
                is_over = found and (found.completed or not found.is_write)
                if is_over or self._log.conflict_of(instant):
                    return None
                foreign = rollback and not self._has_requested(rollback.time)
                return Sight(
                    instant,
                    ticks.get(instant),
                    rollback.time if rollback and foreign else None,
                    self._log.heartbeat_died(instant),
                    self._log.is_committing(instant),
                )
        return None

    def _has_requested(self, rollback: str) -> bool:
        """Whether the driver asked for a rollback; its log tells a moment after the table does."""
        if not self._log.has_requested(rollback):
            self._ended.wait(_LOG_LAG_S)
        return self._log.has_requested(rollback)

    def _tell_unanswered(self, reason: str) -> None:
        if not self._unanswered:
            self._logger.warning(
                "The driver's heartbeat cannot be looked at, which says nothing of the driver: %s",
                reason,
            )
        self._unanswered = True
