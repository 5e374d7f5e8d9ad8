"""What an attempt is told while its driver runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.submitter import Handle


@dataclass(slots=True)
class Follower:
    """Reads a driver's log, and passes on what it shows.

    :param log: reads every line that it writes.
    :param on_start: called with its handle before it may do anything; where it raises, a gated
        driver never starts.
    :param on_instant: called with the requested time of each write that it asks for.
    :param on_line: called with every line after that.
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
