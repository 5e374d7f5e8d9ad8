"""Pure: which lines of a Spark driver's log its loggers wrote."""

from __future__ import annotations

import re

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
