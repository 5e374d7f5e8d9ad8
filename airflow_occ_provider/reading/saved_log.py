"""Pure: what the saved log of any driver shows of its outcome.

It is the plain text of one driver's log; other tools may have put something before each line, or put
each line into a record in JSON. The outcome comes from Hudi's own records, which its loggers write at
INFO, and from exceptions with their causes, by the failure table (``hudi_failures``).

No log says for certain which exception ended its driver. So one counts only if the driver has failed,
by its exit code or by what Airflow logs of a failed task, and if no other exception may explain that.
One that is torn never does: by another thread's output, by a tool that drops tabs, or by the end of the
file. Then the outcome is ``unknown``, with the lines that may explain it.

The log of a task of ours ends with the outcome that the table has decided, and that is the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from airflow_occ_provider.attempts.log.driver_log import OwnInstants, reading_of
from airflow_occ_provider.attempts.log.facts import KIND, Cause, Chain, with_remote_class
from airflow_occ_provider.attempts.log.hudi_failures import (
    Diagnosis,
    diagnose,
    diagnose_conflict,
    is_of_hudi,
    marked_instant,
)
from airflow_occ_provider.attempts.outcome import MEANINGS, LogReading, Outcome, was_killed

_AROUND = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|(?:\s+(?:source|loc)=\S+)+\s*$"
)  # colours, Airflow's fields
_RECORD = re.compile(r"\d\d:\d\d:\d\d\S*\s+(?:\[[^]]*\]\s+)?(?:INFO|WARN|ERROR)\s+[\w.$]+:? ")
# Airflow writes these after a driver's log.
_FAILED = re.compile(r"Task failed with exception|(?:Error code is:|exited with return code) (-?\d+)")
_SETTLED = re.compile(
    rf"Outcome: (?P<outcome>{'|'.join(Outcome)}) \(instant (?P<instant>\S+), exit code -?\w+\)\."
)
_LOSERS = [meaning.title for meaning in MEANINGS.values() if meaning.has_rival]
_LOST = re.compile(rf"(?:{'|'.join(_LOSERS)}): .*?\d (?:lost|gave way) to (?P<rival>\d+)")
_DECIDED = "Decided by: "
# An exception that only says that the driver, or a query of it, has failed.
_OF_ANOTHER = re.compile(
    r"finished with failed status|terminated with (?:exception|error)|\[STREAM_FAILED\]"
    r"|User application exited with|SparkUserAppException|User class threw exception"
)
_OF_SPARK_SQL = re.compile(r"\.(?:Analysis|Parse)Exception$")  # PySpark prints no frames of these
_CONTAINER = re.compile(r"Container: container_\S*?_(?P<attempt>\d+)_(?P<number>\d+) on \S+")
_DRIVERS_CONTAINER = "000001"
_MESSAGES = ("event", "log", "textPayload", "line", "msg", "message")
_PLACE = re.compile(r"\bpod name: \S+|\bapplication_\d+_\d+\b|\bdriver-\d{14}-\d+\b")
_ELSEWHERE = (
    "The log shows no exception that ended the driver. If the driver ran elsewhere, read the stdout and "
    "stderr of its container: yarn logs -applicationId ID, or kubectl logs POD."
)
_NO_CODE = (
    "The log does not say whether the driver failed. If it did, give its exit code: --exit-code. Look "
    "for the commit in the table's timeline before running again."
)
_SEVERAL = (
    "The log has several exceptions, or one that is torn, and does not show which of them ended the "
    "driver. Look for the commit in the table's timeline before running again."
)
_AFTER_COMMIT = (
    "The commit is in the table, and the driver failed after it. Look whether anything is missing that "
    "the job does later."
)
# Spark Connect puts the class in brackets.
_THROWN = re.compile(rf"(?:^|[\s:\"'(])(?P<type>(?:[\w$]+\.)+{KIND})(?:(?:\)| ?:) (?P<message>.*)|:?$)")
_WORDS = ("Exception", "Error", "Throwable")
_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(
    r"(?:^|[\s:])(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning))"
    r"(?:: (?P<message>.*))?$"
)
# One that splits a traceback.
_LOGGED = re.compile(r"\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+[\w.$]+:\s")
_JVM = ("java.", "org.", "com.", "scala.")
_FACT = 'airflow_occ_provider: {"fact": '
# What Hudi measures objects with tells so why it cannot attach to the process; nothing has failed.
_OF_JOL = re.compile(r"# WARNING: Unable to (?:attach|get)\b")
_UNCAUGHT = re.compile(r'Exception in thread "main"|ApplicationMaster: User class threw exception: ')
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_OF_SUPPRESSED = ("Suppressed: ", "\tCaused by: ", "\t\tat ")


def read_saved_log(lines: Iterable[str], exit_code: int | None = None) -> LogReading:
    """Return the outcome of a driver according to its saved log.

    Of what ``yarn logs`` prints of an application, the container of its last driver counts.

    :param exit_code: the driver's, negative for a signal; by default the one in Airflow's log.
    """
    log, last, is_skipped = _SavedLog(), 0, False
    for line in lines:
        container = _CONTAINER.match(line)
        if container:
            attempt, is_drivers = int(container["attempt"]), container["number"] == _DRIVERS_CONTAINER
            if is_drivers and attempt > last:
                log, last = _SavedLog(), attempt
            is_skipped = not is_drivers or attempt < last
        elif not is_skipped:
            for text in _texts(_AROUND.sub("", line.rstrip("\r\n"))):
                log.feed(text)
    return log.read(exit_code)


class _Exception(NamedTuple):
    """A printed exception, and what it means."""

    chain: PrintedChain
    diagnosis: Diagnosis
    is_hudis: bool


class _SavedLog:
    def __init__(self) -> None:
        self._instants = OwnInstants()
        self._printed = PrintedExceptions()
        # The last of each outcome and kind, oldest first; of those that only were logged, Hudi's alone.
        self._exceptions: dict[tuple[Outcome, bool], _Exception] = {}
        self._marked: str | None = None
        self._has_failed = False
        self._exit_code: int | None = None
        self._places: set[str] = set()
        self._settled: re.Match[str] | None = None
        self._rival: str | None = None
        self._decided: list[str] = []

    def feed(self, line: str) -> None:
        """Take the next line, without what other tools have put around it."""
        self._instants.feed(line)
        self._marked = marked_instant(line) or self._marked
        self._places.update(_PLACE.findall(line))
        self._feed_end(line)
        previous = self._printed.last
        if self._printed.feed(line) and previous:
            self._judge(previous)

    def _feed_end(self, line: str) -> None:
        """Take a line that Airflow or our task may have logged after the driver's end."""
        failed, lost, settled = _FAILED.search(line), _LOST.search(line), _SETTLED.search(line)
        if failed:
            self._has_failed = True
            self._exit_code = int(failed[1]) if failed[1] else self._exit_code
        elif _RECORD.search(line):  # of a driver that goes on: its job has printed such lines
            self._has_failed, self._exit_code, self._settled = False, None, None
        if lost:
            self._rival = lost["rival"]
        if settled:
            self._settled, self._decided = settled, []
        elif _DECIDED in line:
            self._decided.append(line.partition(_DECIDED)[2])

    def _judge(self, chain: PrintedChain) -> None:
        """Judge an exception that may have ended the driver."""
        diagnosis = diagnose(chain.causes, self._instants.times)
        of_jvm = [cause for cause in chain.causes if cause.jvm]
        is_hudis = diagnosis.by_row or is_of_hudi(of_jvm)
        has_frames = any(cause.frames for cause in chain.causes)
        is_torn = chain.is_torn or chain.awaits_python or chain.awaits_jvm
        if is_hudis:
            is_end = diagnosis.by_row or has_frames or chain.is_thrown or not self._is_mentioned(chain)
        else:
            is_end = chain.is_thrown and not any(map(_OF_ANOTHER.search, chain.lines))
        if not (is_end or is_torn):
            return
        # Frames show whether a lock was lost before the commit or after it, and who threw the rest.
        needs_frames = of_jvm and not (diagnosis.by_row or _OF_SPARK_SQL.search(of_jvm[-1].type))
        needs_frames = needs_frames or diagnosis.outcome is Outcome.LOCK_TIMEOUT
        if is_torn or (needs_frames and not has_frames):
            diagnosis = replace(diagnosis, outcome=Outcome.UNKNOWN, remedy=_SEVERAL)
        key = (diagnosis.outcome, chain.is_thrown)
        self._exceptions.pop(key, None)
        self._exceptions[key] = _Exception(chain, diagnosis, is_hudis)

    def _is_mentioned(self, chain: PrintedChain) -> bool:
        """Whether it only repeats an earlier line, or is of a library that warns at each start."""
        lines = (line for each in self._exceptions.values() for line in each.chain.lines)
        first = chain.lines[0] if chain.lines else ""
        return first.startswith(("org.apache.hudi.org.", *lines))

    def read(self, exit_code: int | None) -> LogReading:
        """Return the outcome.

        :param exit_code: the driver's; by default the one in Airflow's log.
        """
        if self._printed.last:
            self._printed.last.is_torn |= self._printed.is_open  # the file may end within it
            self._judge(self._printed.last)
        if self._settled:
            return self._settlement(self._settled)
        exit_code = self._exit_code if exit_code is None else exit_code
        has_failed = self._has_failed if exit_code is None else exit_code != 0
        diagnosis, lines = self._decided_by(exit_code, has_failed=has_failed)
        return reading_of(self._instants, diagnosis, list(dict.fromkeys(lines)), self._marked)

    def _decided_by(self, exit_code: int | None, *, has_failed: bool) -> tuple[Diagnosis, list[str]]:
        """Return what the log means for the driver, and the lines that say so."""
        completed, conflict = self._instants.completed, self._instants.unfinished_conflict
        if completed:
            return Diagnosis(Outcome.COMMITTED, remedy=_AFTER_COMMIT if has_failed else ""), [completed]
        if exit_code is not None and was_killed(exit_code):
            return Diagnosis(Outcome.KILLED), [f"exit code {exit_code}"]
        lines = [line for each in self._exceptions.values() for line in each.chain.lines]
        lines += filter(None, [conflict])
        if not has_failed:
            return Diagnosis(Outcome.UNKNOWN, remedy=_NO_CODE if exit_code is None else ""), lines
        decisive = self._decisive()
        if conflict and not (decisive and decisive.diagnosis.by_row):
            return diagnose_conflict(conflict), [conflict, *lines]
        if decisive:
            return decisive.diagnosis, [*decisive.chain.lines, *filter(None, [conflict])]
        advice = _SEVERAL if lines else _ELSEWHERE
        return Diagnosis(Outcome.UNKNOWN, remedy=advice), lines or sorted(self._places)

    def _decisive(self) -> _Exception | None:
        """Return the exception that ended the driver, if no other one may have done so."""
        exceptions = list(self._exceptions.values())
        thrown = [number for number, each in enumerate(exceptions) if each.chain.is_thrown]
        last = thrown[-1] if thrown else len(exceptions) - 1
        # The job's own exception may be raised because of one of Hudi's, and that one before it.
        is_hudis = bool(thrown) and exceptions[last].is_hudis
        others = exceptions[last:] if is_hudis else exceptions
        return exceptions[last] if len({each.diagnosis.outcome for each in others}) == 1 else None

    def _settlement(self, settled: re.Match[str]) -> LogReading:
        """Return the outcome that the task has logged."""
        outcome = Outcome(settled["outcome"])
        return LogReading(
            outcome,
            instant=None if settled["instant"] == "-" else settled["instant"],
            rival=self._rival if MEANINGS[outcome].has_rival else None,
            lines=tuple(self._decided),
        )


def _texts(line: str) -> list[str]:
    """Return the lines of a saved line: a record in JSON may have several."""
    start = line.find("{")
    if start >= 0 and line.endswith("}") and not _RECORD.search(line[:start]):
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            return _message_of(json.loads(line[start:])).splitlines() or [""]
    return [line]


def _message_of(record: Mapping[str, Any]) -> str:
    """Return the message of a logger's record, and the exceptions that Airflow has logged with it."""
    message = next((record[key] for key in _MESSAGES if isinstance(record.get(key), str)), "")
    if "logger" in record and "event" not in record:  # of a driver
        message = f"{record.get('level', 'INFO')} {record['logger']}: {message}"
    raised = (f"{error['exc_type']}: {error['exc_value']}" for error in record.get("error_detail") or ())
    return "\n".join((message, *raised))


@dataclass(slots=True)
class PrintedChain(Chain):
    """One printed exception with its causes.

    :param is_thrown: whether it was printed as an uncaught one is: as a traceback, or by the JVM's main
        thread or YARN's master.
    :param awaits_python: whether its traceback has not named the exception yet.
    :param awaits_jvm: whether the JVM's exception below that of Python is to follow.
    :param has_suppressed: whether it has suppressed others, which do not count.
    """

    is_thrown: bool = False
    awaits_python: bool = False
    awaits_jvm: bool = False
    has_suppressed: bool = False


class PrintedExceptions:
    """Reads the exceptions of a log, line by line.

    :ivar last: the last exception.
    :ivar is_open: whether the last line was part of an exception, so that more of it may follow.
    """

    def __init__(self) -> None:
        self.last: PrintedChain | None = None
        self.is_open = False
        self._is_linked = False

    def feed(self, line: str) -> PrintedChain | None:
        """Take the next line; return the exception that begins with it, if one does."""
        text = with_remote_class(line.rstrip())
        last = self.last
        if _FACT in text:  # for a process that follows the driver: it quotes what was printed before
            return None
        if text.endswith(_TRACEBACK):
            return self._begin_traceback()
        if any(sign in text for sign in _OF_SUPPRESSED):
            if last:  # a tool may have dropped the tabs that tell its causes from those of the chain
                last.has_suppressed |= "\tSuppressed: " in text
                last.is_torn |= not last.has_suppressed
            return None
        self._is_linked |= text.endswith(_LINKS)
        if last and last.awaits_python:
            self._end_traceback(last, text)
            return None
        if last and text.endswith("JVM stacktrace:"):
            last.awaits_jvm = True
        is_pasted = self.last is None and "Caused by: " in text
        begun = PrintedChain() if is_pasted else None
        self.last = begun or self.last
        if self.last and self.last.add_line(text):
            self.is_open = True
            return begun
        return self._take_thrown(text)

    def _begin_traceback(self) -> PrintedChain | None:
        begun = None if self._is_linked and self.last else PrintedChain(is_thrown=True)
        self.last = begun or self.last
        if self.last:
            self.last.awaits_python = True
        self._is_linked, self.is_open = False, True
        return begun

    def _end_traceback(self, chain: PrintedChain, text: str) -> None:
        """Take a line of a traceback: its error, or what precedes that."""
        error = None if _LOGGED.search(text) else _PYTHON_ERROR.search(text)
        if error:
            kind, message = error["type"], error["message"] or ""
            is_jvms = kind.startswith(_JVM)  # the line with Python's own is lost
            chain.is_torn |= is_jvms
            chain.add(Cause(kind, message, is_jvms or kind.startswith("pyspark.errors.")), error[0])
            chain.awaits_python, chain.awaits_jvm = False, kind.endswith("Py4JJavaError")
            self.is_open = False

    def _take_thrown(self, text: str) -> PrintedChain | None:
        """Take a line that may name an exception which is no cause of another."""
        is_candidate = any(word in text for word in _WORDS) and not _OF_JOL.search(text)
        thrown = _THROWN.search(text) if is_candidate else None
        if thrown is None:
            self.is_open = False
            return None
        cause = Cause(thrown["type"], thrown["message"] or "", jvm=True)
        if self.last and cause in self.last.causes[-1:]:  # printed once more, now with its frames
            return None
        is_part = self.last is not None and self.last.awaits_jvm
        begun = None if is_part else PrintedChain(is_thrown=_UNCAUGHT.search(text) is not None)
        self.last = chain = begun or self.last or PrintedChain()
        chain.awaits_jvm, self.is_open = False, chain.is_thrown
        chain.add(cause, text[thrown.start("type") :])
        return begun
