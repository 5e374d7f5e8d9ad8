"""Reads a running driver's log for its attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.submitter import Handle


@dataclass(slots=True)
class Follower:
    """Reads a driver's log, and reports its writes.

    :param log: reads every line of the driver.
    :param on_start: called with the driver's handle before the driver may do anything; if it raises,
        a gated driver never starts.
    :param on_instant: called with the requested time of each write that the driver requests.
    :param on_line: called with every line, after the others.
    """

    log: DriverLog
    on_start: Callable[[Handle], None] = lambda _: None
    on_instant: Callable[[str], None] = lambda _: None
    on_line: Callable[[str], None] = lambda _: None
    _known: int = field(default=0, init=False)

    def feed(self, line: str) -> None:
        """Take the next line of the driver's log."""
        self.log.feed(line)
        for instant in self.log.own_instants[self._known :]:
            self._known += 1
            self.on_instant(instant)
        self.on_line(line)
