"""Finds the driver's log in the saved logs of an application's containers."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from airflow_occ_provider.submitters.yarn.aggregated_logs import containers, contents

# Of all containers of an attempt, YARN starts that of the application master first.
_DRIVER = re.compile(r"container_(?:e\d+_)?(?P<application>\d+_\d+)_(?P<attempt>\d+)_0*1")
# As ``yarn logs`` of Hadoop 2 and 3 prints them.
_CONTAINER = re.compile(r"Container: (container_\w+) on \S+")
_TITLE_END = re.compile(r"LogAggregationType: ?\w+|={3,}|LogType: ?\S+")
_LOG = re.compile(r"LogType: ?(\S+)")
_CONTENTS = re.compile(r"Log ?Contents:")
_STREAMS = ("stderr", "stdout")


class SavedLogError(ValueError):
    """The saved logs have no driver's log; the message says why."""


class DriverLine(NamedTuple):
    """A line of a driver's log.

    :param attempt: number of the application's attempt: YARN may run a driver again.
    """

    attempt: int
    text: str


def aggregated_lines(file: BinaryIO) -> Iterator[DriverLine]:
    """Yield the lines of the driver's logs in an aggregated file of one node.

    :raises AggregatedLogError: if the file cannot be read.
    :raises SavedLogError: if it has logs of other containers only.
    """
    for attempt, container in sorted(_drivers(containers(file)).items()):
        for name in _STREAMS:
            log = io.BufferedReader(_Joined(contents(file, container, name)))
            for line in io.TextIOWrapper(log, "utf-8", "replace"):
                yield DriverLine(attempt, line)


def printed_lines(lines: Iterable[str]) -> Iterator[DriverLine | str]:
    """Yield the lines of the driver's logs in what ``yarn logs`` has printed.

    Before the first container's title, and thus in a log of another kind, the lines are returned
    unchanged.

    :raises SavedLogError: at the end, if there were logs of other containers only.
    """
    printed = _Printed()
    for line in lines:
        yield from printed.take(line)
    yield from printed.end()


class _Printed:
    """How far the output of ``yarn logs`` is read."""

    def __init__(self) -> None:
        self._containers: list[str] = []
        self._title = ""
        self._attempt: int | None = None
        self._log = ""
        self._is_content = False

    def take(self, line: str) -> Iterator[DriverLine | str]:
        text = line.rstrip("\r\n")
        if self._is_content:
            yield from self._content(line, text)
            return
        title, self._title = self._title, ""
        if title and _TITLE_END.fullmatch(text):
            self._begin(title)
        elif title and not self._containers:
            yield title
        if _CONTAINER.fullmatch(text):
            self._title = line
        elif not self._containers:
            yield line
        elif log := _LOG.fullmatch(text):
            self._log = log[1]
        elif self._log and _CONTENTS.match(text):
            self._is_content = True

    def _content(self, line: str, text: str) -> Iterator[DriverLine]:
        if text.startswith(f"End of LogType:{self._log}"):
            self._is_content, self._log = False, ""
        elif self._attempt is not None and self._log in _STREAMS:
            yield DriverLine(self._attempt, line)

    def _begin(self, title: str) -> None:
        found = _CONTAINER.match(title)
        container = found[1] if found else ""
        self._containers.append(container)
        driver = _DRIVER.fullmatch(container)
        self._attempt = int(driver["attempt"]) if driver else None

    def end(self) -> Iterator[str]:
        """Yield what is left, or refuse what has no driver."""
        if self._containers:
            _drivers(self._containers)
        elif self._title:
            yield self._title


class _Joined(io.RawIOBase):
    """Parts of a log as one stream of bytes."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._left = b""

    def readable(self) -> bool:
        """Return whether it can be read: always."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as the present part goes; return 0 at the end."""
        self._left = self._left or next(self._parts, b"")
        view = memoryview(buffer).cast("B")
        found, self._left = self._left[: len(view)], self._left[len(view) :]
        view[: len(found)] = found
        return len(found)


def _drivers(found: Iterable[str]) -> dict[int, str]:
    """Return the containers of the application master, by attempt.

    :raises SavedLogError: if there is none, or there are those of several applications.
    """
    ids = sorted({*found})
    drivers = [(driver, one) for one in ids if (driver := _DRIVER.fullmatch(one))]
    if not drivers:
        raise SavedLogError(
            f"it has the logs of {', '.join(ids) or 'no container'}, and in cluster mode the "
            "driver runs in the application master's (container_..._000001). Save the logs of the whole "
            "application: yarn logs -applicationId ID > FILE"
        )
    applications = {driver["application"] for driver, _ in drivers}
    if len(applications) > 1:
        raise SavedLogError(
            f"it has the logs of several applications ({', '.join(sorted(applications))}). Save each "
            "application's into a file of its own"
        )
    return {int(driver["attempt"]): one for driver, one in drivers}
