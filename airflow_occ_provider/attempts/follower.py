"""What an attempt is told while its driver runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_occ_provider.attempts.driver_process import DriverProcess
from airflow_occ_provider.attempts.log.driver_log import DriverLog


@dataclass(frozen=True, slots=True)
class Follower:
    """Who is told what a driver does.

    :param log: reads every line that it writes.
    :param on_start: called with its process before it may do anything; where it raises, the driver
        never starts.
    :param on_instant: called with the requested time of each write that it asks for.
    :param on_line: called with every line after that.
    """

    log: DriverLog
    on_start: Callable[[DriverProcess], None] = lambda _: None
    on_instant: Callable[[str], None] = lambda _: None
    on_line: Callable[[str], None] = lambda _: None
