"""Pure: a driver's log as it was saved, with lines of other loggers around and after it."""

from __future__ import annotations

import re

from airflow_occ_provider.jobs.driver_log import DriverLog
from airflow_occ_provider.jobs.failure import is_sentence
from airflow_occ_provider.jobs.log_lines import attributed, is_jvm_record
from airflow_occ_provider.jobs.outcome import Reading

# Where the driver's log ends in a task's log: what our operator, and what Airflow, writes next.
_SETTLED = re.compile(r"Outcome: \w+ \(instant \S+, exit code (?P<code>-?\d+)\)\.")
_TASK_FAILED = re.compile(r"Task failed with exception(?:.*Error code is: (?P<code>-?\d+))?")


class SavedLog:
    """Reads a saved log: a task's of Airflow in any of its forms, or a bare driver's.

    A job may print what follows a driver's log. Where the log keeps its loggers, they tell the two
    apart; else the driver has not ended if a record of its JVM follows.
    """

    def __init__(self) -> None:
        self._log = DriverLog()
        self._ended = False
        self._exit_code: int | None = None

    def feed(self, raw: str) -> None:
        """Take the next line, as it was saved."""
        line = attributed(raw)
        if line.of_driver is not True and self._is_after_driver(line.text):
            return
        if line.of_driver is False:
            return
        if self._ended:
            if not (line.of_driver or is_jvm_record(line.text)):
                return
            self._ended, self._exit_code = False, None
        self._log.feed(line.text)

    def read(self, exit_code: int | None = None) -> Reading:
        """Tell what the log says the attempt came to.

        :param exit_code: the driver's, negative for a signal; by default what the log says of it.
        """
        return self._log.read(self._exit_code if exit_code is None else exit_code)

    def _is_after_driver(self, text: str) -> bool:
        match = _SETTLED.fullmatch(text) or _TASK_FAILED.match(text)
        if match and match["code"] and self._exit_code is None:
            self._exit_code = int(match["code"])
        ended = match is not None or is_sentence(text)
        self._ended = self._ended or ended
        return ended
