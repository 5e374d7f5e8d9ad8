"""Pure: the lines of a Spark driver's log, freed from what saved them."""

from __future__ import annotations

import json
import re

# 26/11/21 09:25:42 INFO X: ..., 2026-11-21 09:25:42,123 [main] INFO ..., 09:25:42.123 INFO ...
_LOG4J = re.compile(
    r"\[?(?:\d{2,4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d\S*\s"
    r".{0,80}?\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b"
)
# Airflow's own prefix, as its UI and its files show a line of the driver.
_AIRFLOW_TEXT = re.compile(
    r"\[\d{4}-\d\d-\d\d[T ][^\]]+\]\s+(?:\{[^}]*\}\s+)?(?:INFO|WARNING|ERROR)\s+-\s?(?P<line>.*)"
)


def unwrap(raw: str) -> str:
    """Return a line of the driver as the driver wrote it, without its line break.

    Airflow keeps task logs as JSON objects with the line under ``event``, and shows them with a
    prefix of time and level; other lines come back as they are.

    :param raw: one line of a saved log.
    """
    line = raw.rstrip("\r\n")
    if line.startswith("{") and '"event"' in line:
        try:
            event = json.loads(line).get("event")
        except (ValueError, AttributeError):
            return line
        return event if isinstance(event, str) else line
    match = _AIRFLOW_TEXT.fullmatch(line)
    return match["line"] if match else line


def is_log_record(line: str) -> bool:
    """Whether a logger wrote the line, as against the program's own output."""
    return _LOG4J.match(line) is not None
