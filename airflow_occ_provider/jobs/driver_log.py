"""Pure: from a Spark driver's log and exit code to the outcome of the attempt.

A log decides how an attempt failed. Whether it committed is the table's to say
(``jobs.settle``); from the log alone an attempt is ``committed`` only where Hudi's own line of
the completed instant is there. An exception counts if the program died of it: one in a log
record, in another's message, or printed by a program that lived on does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_occ_provider.jobs.log_lines import follows_record_start
from airflow_occ_provider.jobs.outcome import UNCHECKED, Outcome, Reading, was_killed
from airflow_occ_provider.jobs.own_instants import OwnInstants
from airflow_occ_provider.jobs.signatures import classify, marked_instant, named_instant
from airflow_occ_provider.jobs.traces import Trace, TraceReader

_OPERATIONS = re.compile(
    r"first operation = .*?instantTime=(\d+).*second operation = .*?instantTime=(\d+)"
)
_CHECKED = "Successfully resolved conflicts, if any"
_APPLICATION = re.compile(
    r"(?:Submitted application (?=application_)|Connected to Spark cluster with app ID )([\w-]+)"
)


class DriverLog:
    """Reads a driver's log as it streams; its memory does not grow with the log.

    ``application_id`` is what the cluster manager calls the job, empty while the log has not told.
    """

    def __init__(self) -> None:
        self.application_id = ""
        self._traces = TraceReader()
        self._instants = OwnInstants()
        self._conflict: str | None = None
        self._marked: str | None = None
        self._checked = False
        self._protected = False
        self._unprotected: str | None = None

    def feed(self, raw: str) -> None:
        """Take the next line of the log; a saved log is for ``SavedLog`` to read."""
        line = raw.rstrip("\r\n")
        self._traces.feed(line)
        self._instants.feed(line)
        self._marked = marked_instant(line) or self._marked
        self._note(line)

    def _note(self, line: str) -> None:
        if "operation = " in line and "instantTime=" in line:
            self._conflict = line.strip()
        elif _CHECKED in line:
            self._checked = self._checked or follows_record_start(line, line.index(_CHECKED))
        elif "appl" in line or "app ID" in line:
            told = _APPLICATION.search(line)
            self.application_id = told[1] if told else self.application_id
        elif line.startswith("airflow_occ_provider: protected: "):
            self._protected = True
        elif line.startswith("airflow_occ_provider: not protected: "):
            self._unprotected = line

    @property
    def own_instants(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has asked for so far."""
        return self._instants.times

    def read(self, exit_code: int | None = None, *, committed: bool | None = None) -> Reading:
        """Tell what the log says the attempt came to.

        :param exit_code: the driver's, negative for a signal; ``None`` where it is not known.
        :param committed: ``False`` where the table has told that nothing was committed.
        """
        outcome, lines = self._decide(exit_code, committed)
        operations = self._named_operations(lines)
        own, death = self.own_instants, self._death(exit_code)
        return Reading(
            outcome,
            instant=own[-1] if own else operations[0] or self._named_instant(),
            rival=operations[1] if outcome is Outcome.COMMIT_CONFLICT else None,
            lines=lines,
            own_instants=own,
            died=death is not None,
            conflict_checked=self._checked if own else None,
        )

    def conflict_of(self, instant: str) -> str | None:
        """Return the line in which Hudi named ``instant`` as the loser of a conflict, if any."""
        return self._conflict if self.rival_of(instant) else None

    def rival_of(self, instant: str) -> str | None:
        """Return the instant that Hudi named as the winner over ``instant``, if any."""
        match = _OPERATIONS.search(self._conflict or "")
        return match[2] if match and match[1] == instant else None

    def has_requested(self, time: str) -> bool:
        """Whether the driver itself asked for an instant, of whatever action."""
        return self._instants.has_requested(time)

    def is_committing(self, instant: str) -> bool:
        """Whether a write has come to its commit."""
        return self._instants.is_committing(instant)

    def heartbeat_died(self, instant: str) -> bool:
        """Whether the timer that made a write's heartbeat died."""
        return self._instants.heartbeat_died(instant)

    def _decide(self, exit_code: int | None, committed: bool | None) -> tuple[Outcome, tuple[str, ...]]:
        completed = None if committed is False else self._instants.completed
        if completed and self._protected and not self._checked:
            return Outcome.MISCONFIGURATION, (UNCHECKED, completed)
        if completed:
            return Outcome.COMMITTED, (completed,)
        if self._unprotected:
            return Outcome.MISCONFIGURATION, (self._unprotected,)
        return self._how_it_ended(exit_code)

    def _how_it_ended(self, exit_code: int | None) -> tuple[Outcome, tuple[str, ...]]:
        if exit_code is not None and was_killed(exit_code):
            return Outcome.KILLED, (f"exit code {exit_code}",)
        death = self._death(exit_code)
        if death:
            return classify(death.causes, self.own_instants), self._deciding_lines(death)
        if exit_code:
            return Outcome.JOB_ERROR, (f"exit code {exit_code}",)
        return Outcome.UNKNOWN, ()

    def _death(self, exit_code: int | None) -> Trace | None:
        trace = self._traces.last
        if exit_code == 0 or trace is None or not trace.causes:
            return None
        if self._protected:  # what our runner did not let through, the job has caught
            return trace if trace.from_runner else None
        return trace if trace.at_top_level and not trace.output_follows else None

    def _deciding_lines(self, trace: Trace) -> tuple[str, ...]:
        found = (self._conflict,) if self._conflict and "Found conflicting" in self._conflict else ()
        return (*trace.lines, *(line for line in found if line not in trace.lines))

    def _named_operations(self, lines: Iterable[str]) -> tuple[str | None, str | None]:
        for line in lines:
            match = _OPERATIONS.search(line)
            if match:
                return match[1], match[2]
        return None, None

    def _named_instant(self) -> str | None:
        """Return the own instant as exceptions name it, for a log without Hudi's records."""
        trace = self._traces.last
        pair = _OPERATIONS.search(self._conflict or "")
        named = named_instant(trace.causes) if trace else None
        return named or self._marked or (pair[1] if pair else None) or self._instants.unbeaten
