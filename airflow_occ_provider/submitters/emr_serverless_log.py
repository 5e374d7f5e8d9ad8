"""The driver's log that EMR Serverless writes to S3."""

from __future__ import annotations

import gzip
import time
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

OpenFile = Callable[[str], BinaryIO]
"""Opens a file by its URL; raises any error if there is none."""

_STREAMS = ("stdout", "stderr")  # Python writes to the first, the JVM to the second
_MOST_LINES = 1000
_LONGEST_S = 30.0
_LOOKED_AT = 1000  # lines between two looks at the clock


def driver_log(open_file: OpenFile, log_uri: str, application: str, job_run: str) -> list[str] | None:
    """Return the last lines of the driver's log; ``None`` if there is no log yet.

    An error of the storage counts as no log: the driver's report has what decides the outcome.

    :param log_uri: where EMR Serverless writes the logs.
    """
    root = f"{log_uri.rstrip('/')}/applications/{application}/jobs/{job_run}"
    for folder in (root, f"{root}/attempts/1"):  # the second if the run may be repeated
        streams = [_tail(open_file, f"{folder}/SPARK_DRIVER/{name}.gz") for name in _STREAMS]
        if any(lines is not None for lines in streams):
            return [line for lines in streams for line in lines or ()]
    return None


def _tail(open_file: OpenFile, url: str) -> list[str] | None:
    """Return the last lines of a stream; ``None`` if it is not there, or cannot be read."""
    last, number, until_s = deque[str](maxlen=_MOST_LINES), 0, time.monotonic() + _LONGEST_S
    try:
        with open_file(url) as packed, gzip.open(packed) as content:
            for number, line in enumerate(content, 1):
                last.append(line.decode(errors="replace"))
                if not number % _LOOKED_AT and time.monotonic() > until_s:
                    break
    except Exception:  # noqa: BLE001 - each client has errors of its own
        return list(last) or None
    left_out = number - len(last)
    return [f"({left_out} lines before these are in {url})\n", *last] if left_out else list(last)
