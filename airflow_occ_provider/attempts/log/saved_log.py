"""Pure: a driver's log as it was saved, among lines of other loggers."""

from __future__ import annotations

import re

from airflow_occ_provider.attempts.failure import is_sentence
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.lines import attributed, is_jvm_record
from airflow_occ_provider.attempts.outcome import Reading

# The end of the driver's log in a task's log: the lines that our operator or Airflow writes next.
_SETTLED = re.compile(r"Outcome: \w+ \(instant \S+, exit code (?P<code>-?\d+)\)\.")
_TASK_FAILED = re.compile(r"Task failed with exception(?:.*Error code is: (?P<code>-?\d+))?")


class SavedLog:
    """Reads a saved log: an Airflow task's in any of its forms, or a bare driver's.

    A job may print the same lines that follow a driver's log. If the log records its loggers, they
    distinguish the two; else the driver has not ended if a record of its JVM follows.
    """

    def __init__(self) -> None:
        self._log = DriverLog()
        self._ended = False
        self._exit_code: int | None = None

    def feed(self, raw: str) -> None:
        """Take the next saved line."""
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
        """Return the attempt's outcome according to the log.

        :param exit_code: the driver's, negative for a signal; by default the one in the log.
        """
        return self._log.read(self._exit_code if exit_code is None else exit_code)

    def _is_after_driver(self, text: str) -> bool:
        match = _SETTLED.fullmatch(text) or _TASK_FAILED.match(text)
        if match and match["code"] and self._exit_code is None:
            self._exit_code = int(match["code"])
        ended = match is not None or is_sentence(text)
        self._ended = self._ended or ended
        return ended
