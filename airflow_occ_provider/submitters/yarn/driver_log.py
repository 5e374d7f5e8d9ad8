"""Follows the log of a driver in YARN: live, then from the aggregated file."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

from airflow_occ_provider.submitters.yarn.aggregated_logs import AggregatedLogError, contents
from airflow_occ_provider.submitters.yarn.container import Container

_AGGREGATION_S = 60.0
# SUCCEEDED without a file: the driver was killed before it had a log.
_AGGREGATION_ENDED = frozenset(("DISABLED", "FAILED", "TIME_OUT", "SUCCEEDED"))
# By release of Hadoop, the latest first; {number} is the end of the application's id.
_FOLDERS = ("bucket-logs-tfile/{number}/{id}", "logs-tfile/{id}", "logs/{id}")

OpenLog = Callable[[str], BinaryIO]
"""Opens an aggregated log by its path below the cluster's folder of aggregated logs."""


class _Stream:
    """How far one of the container's logs is read, with its incomplete line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.is_complete = False
        self.rest: Iterator[bytes] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def lines(self, part: bytes, *, is_end: bool = False) -> list[str]:
        """Take what follows in the log; return the lines that it completes."""
        self.offset += len(part)
        text = self._begun + self._decoder.decode(part, is_end)
        *found, self._begun = text.split("\n")
        if is_end:
            found += [self._begun] if self._begun else []
            self.is_complete, self._begun = True, ""
        return [f"{line}\n" for line in found]


class DriverLog:
    """The lines of a driver's ``stdout`` and ``stderr``, each line once.

    Python writes to ``stdout`` with both of its streams, the JVM logs to ``stderr``.

    :param open_log: opens aggregated logs; ``None`` if this process has no access to them.
    """

    def __init__(self, open_log: OpenLog | None) -> None:
        self._open_log = open_log
        self._streams = (_Stream("stderr"), _Stream("stdout"))
        self._deadline = 0.0
        self.is_whole = True

    def live(self, container: Container) -> list[str]:
        """Return the lines that the container has written since the last call."""
        found: list[str] = []
        for stream in self._streams:
            found += stream.lines(container.log(stream.name, stream.offset) or b"")
        return found

    def after(self, container: Container, application: str, user: str, logs: str) -> list[str] | None:
        """Return lines of a container that has ended; ``None`` once all were returned.

        :param application: id of its application.
        :param user: who runs the application.
        :param logs: how far the aggregation of its logs is.
        """
        self._deadline = self._deadline or time.monotonic() + _AGGREGATION_S
        for stream in self._streams:
            if not stream.is_complete:
                return self._of(stream, container, (application, user, logs))
        return None

    def _of(self, stream: _Stream, container: Container, place: tuple[str, str, str]) -> list[str]:
        application, user, logs = place
        live = None if stream.rest else container.log(stream.name, stream.offset)
        if live is not None:
            return stream.lines(live, is_end=not live)
        try:
            file = None if stream.rest else open_aggregated(self._open_log, container, application, user)
            if file:
                stream.rest = _closing(file, contents(file, container.id, stream.name, stream.offset))
            if stream.rest:
                part = next(stream.rest, b"")
                return stream.lines(part, is_end=not part)
            why = f"YARN has not aggregated it ({logs})" if self._open_log else "no open_log is given"
        except (OSError, AggregatedLogError) as error:
            return self._cut_off(stream, error)
        if self._open_log and logs not in _AGGREGATION_ENDED and time.monotonic() < self._deadline:
            return []
        return self._cut_off(stream, why)

    def _cut_off(self, stream: _Stream, why: object) -> list[str]:
        self.is_whole = False
        missing = f"The rest of the driver's {stream.name} cannot be read: {why}.\n"
        return [*stream.lines(b"", is_end=True), missing]


def open_aggregated(
    open_log: OpenLog | None, container: Container, application: str, user: str
) -> BinaryIO | None:
    """Open the aggregated logs of the node of a container; ``None`` if there are none.

    A node completes the file once all of the application's containers on it have ended.

    :param application: id of its application.
    :param user: who runs the application.
    """
    node, number = container.node.replace(":", "_"), application.rpartition("_")[2][-4:]
    for folder in _FOLDERS if open_log else ():
        with suppress(FileNotFoundError):
            path = f"{user}/{folder.format(id=application, number=number)}/{node}"
            return open_log(path) if open_log else None
    return None


def _closing(file: BinaryIO, parts: Iterator[bytes]) -> Iterator[bytes]:
    with file:
        yield from parts
