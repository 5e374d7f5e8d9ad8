"""One finding about a table, with its evidence and its remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_MOST_NAMED = 5


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Data was lost or is wrong, or will be."""
    WARNING = "warning"
    """A writer, a lock or a clock is not as concurrent writers need it."""
    NOTICE = "notice"
    """Nothing is wrong now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    :param check: the name of the check that made it, such as ``unchecked_commit``.
    :param instants: requested times of the instants that show it, oldest first.
    :param evidence: what the table shows, as a sentence without a full stop.
    :param remedy: what to do about it.
    """

    check: str
    severity: Severity
    instants: tuple[str, ...]
    evidence: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "check": self.check,
            "severity": self.severity.value,
            "instants": list(self.instants),
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


def some(names: Iterable[str]) -> str:
    """Return the last few names and the number of all, as text."""
    ordered = sorted(names)
    shown = ", ".join(ordered[-_MOST_NAMED:])
    return shown if len(ordered) <= _MOST_NAMED else f"{len(ordered)}, the last {shown}"
