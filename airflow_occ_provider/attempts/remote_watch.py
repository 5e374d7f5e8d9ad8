"""Looks at a driver that runs elsewhere: its state, its log, and its guards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.kept_facts import kept_facts
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Submitter, Unseen
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable

_CHECKS_PER_INTERVAL = 4
_LONGEST_LOOK_S = 5.0


@dataclass(slots=True)
class RemoteWatch:
    """Watches a driver by separate looks, each of which returns soon.

    :param echo: takes each line of its log.
    """

    submitter: Submitter
    handle: Handle
    table: HudiTable
    rule: HeartbeatRule
    logger: Any
    echo: Callable[[str], object]
    _log: DriverLog = field(default_factory=DriverLog, init=False)
    _alarm: HeartbeatAlarm = field(init=False)
    _is_read: bool = field(default=False, init=False)
    _checked_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self._alarm = HeartbeatAlarm(self.table, self._log, self.rule, self.logger)

    def look(self) -> Running | Ended | Unseen:
        """Return the driver's state, after reading its log and checking its heartbeat.

        The end is returned once the log is read as well.
        """
        state = self.submitter.poll(self.handle)
        if isinstance(state, Unseen):
            return state
        until_s = time.monotonic() + (_LONGEST_LOOK_S if isinstance(state, Ended) else 0)
        while not self._is_read:
            self._read()
            if time.monotonic() >= until_s:
                break
        if isinstance(state, Ended):
            return state if self._is_read else Running()
        if time.monotonic() - self._checked_s >= self.rule.interval_ms / 1000 / _CHECKS_PER_INTERVAL:
            self._checked_s = time.monotonic()
            self._alarm.check()
        return state

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any."""
        return self._alarm.stop

    def facts(self, redact: Callable[[str], str], *, is_whole: bool) -> dict[str, Any]:
        """Return what it has read in the log, see ``kept_facts``."""
        return kept_facts(self._log, redact, is_whole=is_whole)

    def _read(self) -> None:
        lines = self.submitter.read(self.handle, 0)
        self._is_read = lines is None
        for line in lines or ():
            self.echo(line)
            self._log.feed(line)
