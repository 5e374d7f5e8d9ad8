"""Pure: the exceptions that a saved log prints, with their whole cause chains."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_occ_provider.attempts.log.causes import JVM_CAUSE, Cause, Chain
from airflow_occ_provider.attempts.log.lines import is_log_record

# The program's first line may split a long record of the JVM; in a message it follows ": ".
# The golden logs contain both names.
_RUNNER = re.compile(r"/airflow_occ_provider/(?:in_driver/run_job|jobs/write_job)\.py")
_START = re.compile(r"(?:.*[^\s:])?Traceback \(most recent call last\):")
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_JVM_MAIN = re.compile(r'Exception in thread "main" (?P<type>[\w.$]+)(?:: (?P<message>.*))?')
_PYTHON_ERROR = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?")
_PYTHON_ERROR_NAME = re.compile(r"(?:Error|Exception|Interrupt|Exit|Warning)$")
_ERROR_LINE = re.compile(r"[\w.$]+(?:Exception|Error)(?::|$)")
_FRAME = re.compile(r'File ".*", line \d+, in (?P<function>.+)')
_JVM_FRAME = re.compile(r"at [\w.$/<>]+\(|\.\.\. \d+ (?:more|common)")
_CONTINUES = re.compile(
    r'at |File "|Caused by: |Suppressed: |Driver stacktrace:|JVM stacktrace:|: |[\^~)]+$'
)
# spark-sql logs the exception of a statement, prints it, and ends, unless it is set to go on.
_SQL_FAILED = re.compile(r"\bSparkSQLDriver\b.{0,20}Failed in \[")
_SQL_WENT_ON = re.compile(r"Time taken: [\d.]+ seconds")
_JVM_ERROR = re.compile(r"(?P<type>[\w$]+(?:\.[\w$]+)+(?:Exception|Error))(?:: (?P<message>.*))?")


@dataclass(slots=True)
class Trace(Chain):
    """One printed exception with its causes.

    :param at_top_level: whether it left the program's top level, as an uncaught one does.
    :param from_runner: whether it left our own runner, which only an uncaught one does.
    :param output_follows: whether the program wrote something after it, so it went on.
    """

    at_top_level: bool = False
    from_runner: bool = False
    output_follows: bool = False

    def ended_program(self, *, protected: bool) -> bool:
        """Whether it ended the program.

        :param protected: whether our runner ran the job, which then caught every other exception.
        """
        uncaught = self.from_runner if protected else self.at_top_level and not self.output_follows
        return uncaught and bool(self.causes)


class TraceReader:
    """Collects the traces of a log, line by line; keeps only the last one."""

    def __init__(self) -> None:
        self.last: Trace | None = None
        self._in_frames = False
        self._indented = False
        self._past_first_frame = False
        self._in_record = False
        self._linked = False
        self._message_open = False
        self._in_sql = False

    def feed(self, line: str) -> None:
        """Take the next line of the log."""
        if is_log_record(line):
            self._message_open = False
            self._in_record = True
            if _SQL_FAILED.search(line):
                self._in_sql, self._in_frames = True, False
                self.last = Trace(at_top_level=True)
            return
        text = line.strip()
        if self._in_sql and self._feed_sql(text):
            return
        if self._in_record and not self._in_frames and _ERROR_LINE.match(text):
            return  # that record's own stack trace
        self._in_record = False
        if _START.fullmatch(text):
            self._begin()
        elif self._in_frames:
            self._frame_or_error(line, text)
        elif text:
            self._after(line, text)

    def _feed_sql(self, text: str) -> bool:
        """Take a line after a failed SQL statement; return false if it begins something else."""
        trace = self.last
        if trace is None or _START.fullmatch(text):
            self._in_sql = False
            return False
        error = _JVM_ERROR.fullmatch(text)
        if _SQL_WENT_ON.match(text):
            trace.output_follows = True
        elif not trace.causes and error:  # the lines before it are the statement
            trace.add_jvm(error, text)
            self._message_open = True
        elif trace.causes:
            self._message_open |= trace.add_line(text)
        return True

    def _begin(self) -> None:
        if not self._linked or self.last is None:
            self.last = Trace()
        self._in_frames, self._linked, self._past_first_frame = True, False, False

    def _frame_or_error(self, line: str, text: str) -> None:
        trace = self.last
        assert trace is not None  # noqa: S101 - set by _begin
        frame = _FRAME.match(text)
        if frame:
            self._indented = line.startswith(" ")
            if not self._past_first_frame:
                trace.at_top_level = frame["function"] == "<module>"
                trace.from_runner = trace.at_top_level and _RUNNER.search(text) is not None
            self._past_first_frame = True
            return
        error = _PYTHON_ERROR.fullmatch(text)
        if error and self._is_error_line(line, error["type"]):
            self._in_frames = False
            self._message_open = True
            jvm = error["type"].startswith("pyspark.errors.")
            trace.add(Cause(error["type"], error["message"] or "", jvm), text)

    def _is_error_line(self, line: str, name: str) -> bool:
        if self._indented:
            return not line.startswith(" ")
        return _PYTHON_ERROR_NAME.search(name) is not None

    def _after(self, line: str, text: str) -> None:
        main = _JVM_MAIN.match(text)
        if main:
            self.last = Trace(at_top_level=True)
            self.last.add(Cause(main["type"], main["message"] or "", jvm=True), text)
            self._message_open = True
            return
        trace = self.last
        if trace is None:
            return
        if text in _LINKS:
            self._linked = True
            return
        of_jvm = trace.causes[-1].jvm or trace.causes[-1].type.endswith("Py4JJavaError")
        suppressed = line.startswith(("\t", " ")) and text.startswith("Caused by")
        cause = JVM_CAUSE.match(text) if of_jvm and not suppressed else None
        if cause:
            trace.add_jvm(cause, text)
            self._message_open = True
        elif _JVM_FRAME.match(text):
            self._message_open = False
            trace.add_frame(text)
        elif not (self._message_open or _CONTINUES.match(text)):
            trace.output_follows = True
