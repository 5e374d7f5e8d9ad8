"""Finds the driver's log in what ``yarn logs`` has printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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
        name = _CONTAINER.match(title)
        container = name[1] if name else ""
        self._containers.append(container)
        driver = _DRIVER.fullmatch(container)
        self._attempt = int(driver["attempt"]) if driver else None

    def end(self) -> Iterator[str]:
        """Yield what is left, or refuse what has no driver."""
        if self._containers:
            _refuse_without_driver(self._containers)
        elif self._title:
            yield self._title


def _refuse_without_driver(containers: Iterable[str]) -> None:
    """Refuse logs of containers without an application master, or of several applications.

    :raises SavedLogError: then.
    """
    ids = sorted({*containers})
    drivers = [driver for name in ids if (driver := _DRIVER.fullmatch(name))]
    if not drivers:
        raise SavedLogError(
            f"it has the logs of {', '.join(ids) or 'no container'}, and in cluster mode the "
            "driver runs in the application master's (container_..._000001). Save the logs of the whole "
            "application: yarn logs -applicationId ID > FILE"
        )
    applications = {driver["application"] for driver in drivers}
    if len(applications) > 1:
        raise SavedLogError(
            f"it has the logs of several applications ({', '.join(sorted(applications))}). Save each "
            "application's into a file of its own"
        )
