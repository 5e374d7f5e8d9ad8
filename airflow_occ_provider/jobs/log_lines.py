"""Pure: the lines of a Spark driver's log, freed from what saved them."""

from __future__ import annotations

import json
import re

# 26/11/21 09:25:42 INFO X: ..., 2026-11-21 09:25:42,123 [main] INFO ..., 09:25:42.123 INFO ...
_LOG4J = re.compile(
    r"\[?(?:\d{2,4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d\S*\s"
    r".{0,80}?\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL|WARNING|CRITICAL)\b"
)
# SparkContext: ... with the level first, Python's own logging, a JSON layout, the interpreter's words.
_OTHER_RECORD = re.compile(
    r"\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\s*\]?[\s:]\s*\S+"
    r'|\{"(?:ts|timestamp|@timestamp)"|Exception ignored in: |sys:\d+: '
)
_DRIVER_LOGGER = "SparkSubmit"
_TASK_FAILED = "Task failed with exception"
_SETTLED = "Outcome: "
# Airflow's own prefix, as its UI and its files show a line of the driver.
_AIRFLOW_TEXT = re.compile(
    r"\[\d{4}-\d\d-\d\d[T ][^\]]+\]\s+(?:\{[^}]*\}\s+)?(?:INFO|WARNING|ERROR)\s+-\s?(?P<line>.*)"
)


def unwrap(raw: str) -> str | None:
    """Return a line of the driver as the driver wrote it, from a log that somebody saved.

    Airflow keeps task logs as JSON objects with the line under ``event``, and shows them with a
    prefix of time and level; other lines come back as they are. ``None`` for what other loggers
    of Airflow wrote in between.

    :param raw: one line of a saved log.
    """
    line = raw.rstrip("\r\n")
    if line.startswith("{") and '"event"' in line:
        try:
            return _from_json(json.loads(line), line)
        except (ValueError, RecursionError):
            return line
    match = _AIRFLOW_TEXT.fullmatch(line)
    return match["line"] if match else line


def _from_json(record: dict[str, object], line: str) -> str | None:
    event, logger = record.get("event"), str(record.get("logger", _DRIVER_LOGGER))
    if not isinstance(event, str):
        return line
    if event.startswith(_TASK_FAILED):
        code = re.search(r"Error code is: -?\d+", json.dumps(record.get("error_detail", "")))
        return f"{event}: {code[0]}" if code else event
    return event if _DRIVER_LOGGER in logger or event.startswith(_SETTLED) else None


def is_log_record(line: str) -> bool:
    """Whether a logger wrote the line, as against the program's own output."""
    return (_LOG4J.match(line) or _OTHER_RECORD.match(line)) is not None
