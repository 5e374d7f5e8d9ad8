"""Pure: the outcome of an attempt from the saved log of any driver.

From a saved log alone an attempt is ``committed`` if the log contains Hudi's own line of the completed
instant. An exception counts if it ended the program, and not inside a log record, inside another's
message, or if the program went on after it.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import NamedTuple

from airflow_occ_provider.attempts.failure import is_sentence
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.hudi_failures import marked_instant
from airflow_occ_provider.attempts.log.lines import is_jvm_record
from airflow_occ_provider.attempts.log.traces import TraceReader
from airflow_occ_provider.attempts.outcome import UNCHECKED, Outcome, Reading

_DRIVER_LOGGER = "SparkSubmit"
# Airflow's own prefix, as its UI and its files show a line of the driver.
_AIRFLOW_TEXT = re.compile(
    r"\[\d{4}-\d\d-\d\d[T ][^\]]+\]\s+(?:\{[^}]*\}\s+)?(?:INFO|WARNING|ERROR)\s+-\s?(?P<line>.*)"
)
# The end of the driver's log in a task's log: the lines that our operator or Airflow writes next.
_SETTLED = re.compile(r"Outcome: \w+ \(instant \S+, exit code (?P<code>-?\d+)\)\.")
_TASK_FAILED = "Task failed with exception"
_AIRFLOW_FAILED = re.compile(rf"{_TASK_FAILED}(?:.*Error code is: (?P<code>-?\d+))?")
# As a runner reported it without facts; the golden logs contain it.
_REPORT = re.compile(r"airflow_occ_provider: (?P<not>not )?protected: ")


class SavedLine(NamedTuple):
    """A line of a saved log, without the format that saved it.

    :param of_driver: whether the driver wrote it; ``None`` if the log does not record that.
    """

    text: str
    of_driver: bool | None = None

    @classmethod
    def of(cls, raw: str) -> SavedLine:
        """Read one line of a saved log.

        Airflow saves task logs as JSON objects with the line under ``event`` and its logger, and shows
        them with a prefix of time and level; other lines are returned unchanged.
        """
        line = raw.rstrip("\r\n")
        if line.startswith("{") and '"event"' in line:
            try:
                return cls._from_json(json.loads(line), line)
            except (ValueError, RecursionError):
                return cls(line)
        match = _AIRFLOW_TEXT.fullmatch(line)
        return cls(match["line"] if match else line)

    @classmethod
    def _from_json(cls, record: dict[str, object], line: str) -> SavedLine:
        event = record.get("event")
        if not isinstance(event, str):
            return cls(line)
        if "logger" not in record:
            return cls(event)
        if _DRIVER_LOGGER in str(record["logger"]):
            return cls(event, of_driver=True)
        if event.startswith(_TASK_FAILED):
            code = re.search(r"Error code is: -?\d+", json.dumps(record.get("error_detail", "")))
            event = f"{event}: {code[0]}" if code else event
        return cls(event, of_driver=False)


class SavedLog:
    """Reads a saved log: an Airflow task's in any of its forms, or a bare driver's.

    A job may print the same lines that follow a driver's log. If the log records its loggers, they
    distinguish the two; else the driver has not ended if a record of its JVM follows.
    """

    def __init__(self) -> None:
        self._log = DriverLog()
        self._traces = TraceReader()
        self._marked: str | None = None
        self._ended = False
        self._exit_code: int | None = None

    def feed(self, raw: str) -> None:
        """Take the next saved line."""
        text, of_driver = SavedLine.of(raw)
        if (of_driver is not True and self._is_after_driver(text)) or of_driver is False:
            return
        if self._ended:
            if not (of_driver or is_jvm_record(text)):
                return
            self._ended, self._exit_code = False, None
        self._log.feed(text)
        if not self._log.reports:
            self._feed_heuristics(text)

    def _feed_heuristics(self, line: str) -> None:
        self._traces.feed(line)
        self._marked = marked_instant(line) or self._marked
        report = _REPORT.match(line)
        if report and report["not"]:
            self._log.unprotected = line
        elif report:
            self._log.protected = True

    def read(self, exit_code: int | None = None) -> Reading:
        """Return the attempt's outcome according to the log.

        :param exit_code: the driver's, negative for a signal; by default the one in the log.
        """
        exit_code = self._exit_code if exit_code is None else exit_code
        log, last = self._log, self._traces.last
        if log.reports or log.fatal:
            reading = log.read(exit_code)
        else:
            death = last if last and last.ended_program(protected=log.protected) else None
            reading = log.judge(exit_code, last, death, self._marked)
        completed = log.instants.completed
        if not completed:
            return reading
        if log.protected and not log.instants.checked:
            return replace(
                reading, outcome=Outcome.MISCONFIGURATION, rival=None, lines=(UNCHECKED, completed)
            )
        return replace(reading, outcome=Outcome.COMMITTED, rival=None, lines=(completed,))

    def _is_after_driver(self, text: str) -> bool:
        match = _SETTLED.fullmatch(text) or _AIRFLOW_FAILED.match(text)
        if match and match["code"] and self._exit_code is None:
            self._exit_code = int(match["code"])
        ended = match is not None or is_sentence(text)
        self._ended = self._ended or ended
        return ended
