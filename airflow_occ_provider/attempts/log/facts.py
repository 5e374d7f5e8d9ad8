"""Pure: a runner's facts, exceptions with their causes, and lines of loggers.

Each fact is a line of JSON. A driver writes them to files of its attempt's folder, where nothing else
writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# 26/11/21 09:25:42 INFO X: ..., 2026-11-21 09:25:42,123 [main] INFO ..., 09:25:42.123 INFO ...
_LOG4J = re.compile(
    r"\[?(?:\d{2,4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d\S*\s"
    r".{0,80}?\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL|WARNING|CRITICAL)\b"
)
# SparkContext: ... with the level first, Python's own logging, a JSON layout, the interpreter's lines.
_OTHER_RECORD = re.compile(
    r"\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\s*\]?[\s:]\s*\S+"
    r'|\{"(?:ts|timestamp|@timestamp)"|Exception ignored in: |sys:\d+: '
)
_HUDI_LOGGER = re.compile(r"\b[\w.]*(?:Timeline\w*|Transaction\w+)\]?\s*[:-]\s*$")
_MESSAGE = re.compile(r": | - \w+: ")
_JSON_RECORD = re.compile(r'\{.*"(?:logger|logger_name|level)":')
KIND = r"[\w$]*(?:Exception|Error|Throwable)(?:\$\w+)?"
# Thrift's exceptions print their fields in brackets.
_CAUSED = re.compile(
    rf"\bCaused by: (?P<type>(?:[\w$]+\.)*{KIND})(?:: (?P<message>.*)|\((?P<fields>.*)|:?$)"
)
_FRAME = re.compile(r"\bat [\w.$/<>-]+\(.*")
_LOST_TASK = re.compile(rf"executor [^)]*\): (?P<type>(?:[\w$]+\.)+{KIND})(?:: (?P<message>.*))?$")
# Hadoop's client puts the class of the exception that a server threw in brackets, not in the message.
_REMOTE = re.compile(r"\b(org\.apache\.hadoop\.ipc\.RemoteException)\(((?:\w+\.)+[\w$]+)\): ")
_MAX_LINES = 40
_MAX_CAUSES = 40
_MAX_FRAMES = 12
_DECODER = json.JSONDecoder()
Fact = Mapping[str, Any]
Entry = str | Fact
"""What comes from a driver: a line of its output, or a fact."""


def is_logged_by(logger: re.Pattern[str], line: str) -> bool:
    """Whether the line is a record of a logger, not another's that quotes it."""
    if _JSON_RECORD.match(line):
        return logger.search(line) is not None
    named = logger.search(line) if _LOG4J.match(line) else None
    return named is not None and not _MESSAGE.search(line[: named.start()])


def follows_record_start(line: str, position: int) -> bool:
    """Whether a logger wrote the text at a position of a line.

    The text before it, or the JSON around it, shows that. A program's own output without a line break
    may precede the record.
    """
    head = line[:position]
    return bool(
        _LOG4J.search(head)
        or _HUDI_LOGGER.search(head)
        or _OTHER_RECORD.match(head.lstrip())
        or _JSON_RECORD.match(line.lstrip())
    )


@dataclass(slots=True)
class Cause:
    """One exception of a chain.

    :param type: class name, fully qualified if the log has it so.
    :param message: first line of its message.
    :param jvm: whether the JVM threw it, not the Python program.
    :param frames: its first stack frames.
    """

    type: str
    message: str
    jvm: bool
    frames: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Chain:
    """One exception with its causes, outermost first.

    :param lines: the lines that name the causes, as they were printed.
    :param is_torn: whether one of its causes could not be read.
    """

    causes: list[Cause] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    is_torn: bool = False

    def add(self, cause: Cause, line: str) -> None:
        """Append a cause, and that of an executor in its message, and the line."""
        self._append(cause, line)
        lost = _LOST_TASK.search(cause.message) if cause.jvm else None
        if lost:
            self._append(Cause(lost["type"], lost["message"] or "", jvm=True), line)

    def add_line(self, text: str) -> bool:
        """Append the cause or the stack frame of the JVM in a line; whether it has one."""
        if "Caused by: " in text:
            caused = _CAUSED.search(text)
            if caused is None:
                self.is_torn = True
            else:
                message = caused["message"] or caused["fields"] or ""
                self.add(Cause(caused["type"], message, jvm=True), text[caused.start() :])
            return True
        frame = _FRAME.search(text)
        if frame and self.causes and len(self.causes[-1].frames) < _MAX_FRAMES:
            self.causes[-1].frames.append(frame[0])
        return frame is not None

    def _append(self, cause: Cause, line: str) -> None:
        if len(self.causes) < _MAX_CAUSES:
            self.causes.append(cause)
        if len(self.lines) < _MAX_LINES and line.strip() not in self.lines:
            self.lines.append(line.strip())


def with_remote_class(text: str) -> str:
    """Return a text whose remote exceptions name their class in the message."""
    return _REMOTE.sub(r"\1: \2: ", text)


def parse_fact(text: str) -> Fact | None:
    """Return the fact of a line of JSON, if it is one.

    :param text: a line that holds nothing else.
    """
    try:
        fact, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(fact, dict) and not text[end:].strip()
    return fact if is_whole and isinstance(fact.get("fact"), str) else None


def fatal_chain(fact: Fact) -> Chain:
    """Return the exceptions that ended a job.

    Spark puts the stack trace of an executor into a message: its causes are read from there.
    """
    chain = Chain()
    for cause in fact.get("causes", ()):
        first, *rest = with_remote_class(str(cause["message"])).splitlines() or [""]
        name, frames = str(cause["type"]), list(map(str, cause["frames"]))
        chain.add(Cause(name, first, bool(cause["jvm"]), frames), f"{name}: {first}")
        if cause["jvm"]:
            for line in rest:
                chain.add_line(line)
    return chain
