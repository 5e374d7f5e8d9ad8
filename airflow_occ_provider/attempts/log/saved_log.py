"""Pure: the outcome of an attempt from the saved log of any driver.

From a saved log alone an attempt is ``committed`` if the log contains Hudi's own line of the completed
instant. An exception counts if it ended the program, and not inside a log record, inside another's
message, or if the program went on after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from airflow_occ_provider.attempts.failure import is_sentence
from airflow_occ_provider.attempts.log.causes import Chain
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.fatal_frames import FatalFrames, is_of_another
from airflow_occ_provider.attempts.log.hudi_failures import marked_instant
from airflow_occ_provider.attempts.log.lines import END_OF_GROUP, GROUP, is_jvm_record
from airflow_occ_provider.attempts.log.submitter_log import SubmitterLog
from airflow_occ_provider.attempts.log.traces import TraceReader
from airflow_occ_provider.attempts.log.wrappings import SavedLine, Unwrapper, is_start
from airflow_occ_provider.attempts.outcome import UNCHECKED, Outcome, Reading

_SAMPLE = 3000  # lines, from which the wrapping is learned
_DRIVER_LOGGER = "SparkSubmit"
# Airflow's own prefix, of a line that has it although the driver's lines have a longer one.
_AIRFLOW_TEXT = re.compile(
    r"\[\d{4}-\d\d-\d\d[T ,][^\]]+\]\s+(?:\{[^}]*\}\s+)?(?:INFO|WARNING|ERROR)\s+-\s?(?P<line>.*)"
)
_CODE = re.compile(r"(?:Error code is:|(?:exit|return) code:?) (-?\d+)")
# The end of the driver's log in a task's log: the lines that our operator or Airflow writes next.
_SETTLED = re.compile(r"Outcome: \w+ \(instant \S+, exit code (?P<code>-?\d+)\)\.")
_TASK_FAILED = "Task failed with exception"
_AIRFLOW_FAILED = re.compile(
    rf"{_TASK_FAILED}(?:.*(?:Error code is:|(?:exit|return) code:?) (?P<code>-?\d+))?"
)
# As a runner reported it without facts; the golden logs contain it.
_REPORT = re.compile(r"airflow_occ_provider: (?P<not>not )?protected: ")


def _error_lines(detail: str) -> list[str]:
    """Return the lines of an error in the JSON of Airflow 3's logs."""
    errors = json.loads(detail or "[]")
    parts = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    texts = (f"{error.get('exc_type')}: {error.get('exc_value')}" for error in parts)
    return [line for text in texts for line in text.splitlines()]


class SavedLog:
    """Reads a saved log of a driver, in any wrapping.

    It may be an Airflow task's log in any of its forms, another tool's, or a bare driver's. The first
    lines show what other tools have put around them (``wrappings``). A job may print the same lines that
    follow a driver's log. If the log records its loggers, they distinguish the two; else the driver has
    not ended if a record of its JVM follows.
    """

    def __init__(self) -> None:
        self._log = DriverLog()
        self._traces = TraceReader()
        self._frames = FatalFrames()
        self._submitter = SubmitterLog()
        self._marked: str | None = None
        self._ended = False
        self._has_failed = False
        self._exit_code: int | None = None
        self._sample: list[str] = []
        self._unwrapper: Unwrapper | None = None
        self._loggers: set[str] = set()

    def feed(self, raw: str) -> None:
        """Take the next saved line."""
        if self._unwrapper:
            self._feed_saved(self._unwrapper.unwrapped(raw))
            return
        self._sample.append(raw)
        if len(self._sample) >= _SAMPLE:
            self._learn()

    def _learn(self) -> None:
        """Learn the wrapping from the first lines, and read these."""
        self._unwrapper = Unwrapper(self._sample)
        lines = [line for raw in self._sample for line in self._unwrapper.unwrapped(raw)]
        self._sample = []
        self._loggers = {line.logger for line in lines if line.logger and is_start(line.text)}
        self._feed_saved(lines)

    def _feed_saved(self, lines: Iterable[SavedLine]) -> None:
        for line in lines:
            if line.logger is None:
                airflow = _AIRFLOW_TEXT.fullmatch(line.text)
                self._feed_line(airflow["line"] if airflow else line.text, None)
                continue
            if is_start(line.text):
                self._loggers.add(line.logger)
            of_driver = _DRIVER_LOGGER in line.logger or line.logger in self._loggers
            has_failed = line.text.startswith(_TASK_FAILED)
            code = _CODE.search(line.detail) if has_failed else None
            self._feed_line(f"{line.text}: {code[0]}" if code else line.text, of_driver)
            if has_failed:
                self._feed_error(_error_lines(line.detail))

    def _feed_error(self, lines: Iterable[str]) -> None:
        """Take the error that ended the task: of a driver within the task's process, or retold."""
        for line in lines:
            self._log.printed.feed(line)

    def _feed_line(self, text: str, of_driver: bool | None) -> None:
        if text.startswith((GROUP, END_OF_GROUP)):  # around the driver's lines, and none of them
            return
        if (of_driver is not True and self._is_after_driver(text)) or of_driver is False:
            return
        if self._ended:
            code = _CODE.search(text) if self._exit_code is None and self._has_failed else None
            if code:
                self._exit_code = int(code[1])
            if not (of_driver or is_jvm_record(text)):
                self._feed_error([text] if self._has_failed else ())
                return
            self._ended, self._has_failed, self._exit_code = False, False, None
        self._log.feed(text)
        self._submitter.feed(text)
        if not self._log.reports:
            self._feed_heuristics(text)

    def _feed_heuristics(self, line: str) -> None:
        self._traces.feed(line)
        self._frames.feed(line)
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
        if self._sample:
            self._learn()
        exit_code = self._exit_code if exit_code is None else exit_code
        reading = self._read(exit_code)
        if exit_code is None and self._has_failed:  # of the task, if not of the driver
            failed = self._read(1)
            reading = failed if failed.outcome is not Outcome.JOB_ERROR or failed.died else reading
        return reading

    def _read(self, exit_code: int | None) -> Reading:
        log = self._log
        if log.reports or log.fatal:
            reading = log.read(exit_code)
        else:
            death = self._death()
            reading = log.judge(exit_code, death or self._traces.last, death, self._marked)
        completed, unchecked = log.instants.completed, log.instants.unchecked
        if unchecked and log.protected:
            return replace(
                reading, outcome=Outcome.MISCONFIGURATION, rival=None, lines=(UNCHECKED, unchecked)
            )
        if completed:
            return replace(reading, outcome=Outcome.COMMITTED, rival=None, lines=(completed,))
        return self._referred(reading)

    def _death(self) -> Chain | None:
        """Return the exception that ended the program, if the log shows it."""
        last, framed = self._traces.last, self._frames.last
        framed = framed if framed and framed.causes else None
        uncaught = last if last and last.ended_program(protected=self._log.protected) else None
        if uncaught is None or not is_of_another(uncaught):
            return uncaught or framed
        return framed or (uncaught if self._submitter.is_drivers_own else None)

    def _referred(self, reading: Reading) -> Reading:
        """Send the reader to the driver's log if this one does not show why the job failed."""
        place = self._submitter.place
        is_unexplained = reading.outcome is Outcome.JOB_ERROR or not reading.lines
        if place is None or reading.died or not is_unexplained:
            return reading
        return replace(reading, outcome=Outcome.UNKNOWN, lines=(place,), advice=place)

    def _is_after_driver(self, text: str) -> bool:
        match = _SETTLED.fullmatch(text) or _AIRFLOW_FAILED.match(text)
        if match and match["code"] and self._exit_code is None:
            self._exit_code = int(match["code"])
        self._has_failed = self._has_failed or text.startswith(_TASK_FAILED)
        ended = match is not None or is_sentence(text)
        self._ended = self._ended or ended
        return ended
