"""What a driver elsewhere tells of itself in its report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

from airflow_occ_provider.attempts.log.facts import read_fact
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import TableUnreadableError

_NOT_PROTECTED = 78
_KILLED = -9
_TERMINATED = -15
_READS = 3


class ReportedLines(Protocol):
    """The report of a driver, in a file that the worker reaches."""

    @property
    def missed(self) -> int:
        """The number of lines that a long report no longer has."""

    def lines(self) -> list[str]:
        """Return the lines since the last call."""


@dataclass(slots=True)
class LateReport:
    """A report that is opened when it is first read.

    Opening it may look up a connection, which a signal handler must not do.

    :param open_it: opens the report.
    """

    open_it: Callable[[], ReportedLines]
    _opened: ReportedLines | None = field(default=None, init=False)

    @property
    def missed(self) -> int:
        """The number of lines that a long report no longer has."""
        return self._opened.missed if self._opened else 0

    def lines(self) -> list[str]:
        """Return the lines since the last call."""
        self._opened = self._opened or self.open_it()
        return self._opened.lines()


@dataclass(slots=True)
class ReportedDriver:
    """What this process has read of one driver.

    :param report: the driver's report, if it has one.
    :param exit_code: the driver's, as its runner reported it.
    :param is_protected: whether its runner has started the job.
    :param is_read: whether the report and the log were returned to their end.
    :param looked_at: monotonic time of the last request for its state.
    """

    report: ReportedLines | None
    exit_code: int | None = None
    is_protected: bool = False
    is_read: bool = False
    looked_at: float = float("-inf")
    _is_followed: bool = False

    @classmethod
    def of(cls, handle: Handle, open_report: Callable[[str], ReportedLines] | None) -> Self:
        """Follow the driver of a handle, by the report that the handle names."""
        url = str(handle.facts.get("report") or "")
        return cls(LateReport(partial(open_report, url)) if url and open_report else None)

    def read_report(self, pause_s: float, *, is_last: bool) -> list[str]:
        """Take what the driver has reported since the last call, and return it.

        :param pause_s: seconds to wait if its storage does not answer.
        :param is_last: whether to ask again then: it is not read later.
        """
        for _ in range(_READS if is_last else 1):
            try:
                return self.take(self.report.lines()) if self.report else []
            except TableUnreadableError:
                time.sleep(pause_s)
        return []

    def take(self, lines: list[str]) -> list[str]:
        """Take lines of the driver, and return them."""
        for line in lines:
            fact = read_fact(line) or {}
            match fact.get("fact"):
                case "protected":
                    self.is_protected, self._is_followed = True, fact.get("followed") is True
                case "not_protected":
                    self.exit_code, self._is_followed = _NOT_PROTECTED, True
                case "end":
                    self.exit_code = int(fact.get("exit_code", 1))
        return lines

    @property
    def is_whole(self) -> bool:
        """Whether the report was read to the driver's own end, with Hudi's records."""
        has_end = self._is_followed and self.exit_code is not None
        return self.report is not None and has_end and not self.report.missed

    def code(self, *, is_success: bool, was_ended: bool) -> int:
        """Return the exit code of the ended driver.

        Its runner reports every end but a sudden one.

        :param is_success: whether its service says that it ended well.
        :param was_ended: whether it was ended by its service.
        """
        if is_success:
            return self.exit_code or 0
        if was_ended:
            return _TERMINATED
        if self.exit_code is None and self.is_protected:
            return _KILLED
        return self.exit_code or 1
