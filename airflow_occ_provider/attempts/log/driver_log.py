"""Pure: from a Spark driver's log and exit code to the outcome of the attempt.

The log decides how an attempt failed. The table decides whether it committed
(``attempts.settle``); from the log alone an attempt is ``committed`` only if it contains Hudi's own
line of the completed instant. An exception counts if it ended the program. In an attempt of this
provider, the runner reports that exception, and Hudi's records, as facts. In any other log an exception
does not count inside a log record, inside another's message, or if the program went on after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_occ_provider.attempts.log.facts import Fact, fatal_trace, hudi_records, read_fact
from airflow_occ_provider.attempts.log.lines import follows_record_start
from airflow_occ_provider.attempts.log.own_instants import OwnInstants
from airflow_occ_provider.attempts.log.signatures import classify, marked_instant, named_instant
from airflow_occ_provider.attempts.log.traces import Trace, TraceReader
from airflow_occ_provider.attempts.outcome import UNCHECKED, Outcome, Reading, was_killed

_OPERATIONS = re.compile(
    r"first operation = .*?instantTime=(\d+).*second operation = .*?instantTime=(\d+)"
)
_CHECKED = "Successfully resolved conflicts, if any"
_APPLICATION = re.compile(
    r"(?:Submitted application (?=application_)|Connected to Spark cluster with app ID )([\w-]+)"
)


class DriverLog:
    """Reads a driver's log as it streams; its memory does not grow with the log.

    ``application_id`` is the job's id at the cluster manager, empty until the log shows it.
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
        self._reports = False
        self._followed = False
        self._fatal: Trace | None = None
        self._end: int | None = None

    def feed(self, raw: str) -> None:
        """Take the next line of the log; a saved log is for ``SavedLog`` to read."""
        line = raw.rstrip("\r\n")
        fact = read_fact(line)
        if fact:
            self._take(fact)
            return
        if not self._reports:
            self._traces.feed(line)
            self._marked = marked_instant(line) or self._marked
        if self._followed:
            self._instants.feed_printed(line)
        else:
            self._feed_record(line)
        self._note(line)

    def _take(self, fact: Fact) -> None:
        """Take a fact that the runner reports."""
        match fact["fact"]:
            case "protected":
                self._protected = self._reports = True
                self._followed = fact.get("followed") is True
            case "not_protected":
                self._unprotected = f"not protected: {fact.get('reason')}"
            case "fatal":
                self._fatal = fatal_trace(fact)
                marked = map(marked_instant, self._fatal.lines)
                self._marked = next(filter(None, marked), self._marked)
            case "end":
                self._end = int(fact.get("exit_code", 1))
            case "hudi":
                for record in hudi_records(fact):
                    self._feed_record(record)

    def _feed_record(self, line: str) -> None:
        """Take a line in which Hudi may mention an instant, or the check for conflicts."""
        self._instants.feed(line)
        if "operation = " in line and "instantTime=" in line:
            self._conflict = line.strip()
        elif _CHECKED in line:
            self._checked = self._checked or follows_record_start(line, line.index(_CHECKED))

    def _note(self, line: str) -> None:
        if "appl" in line or "app ID" in line:
            told = _APPLICATION.search(line)
            self.application_id = told[1] if told else self.application_id
        if line.startswith("airflow_occ_provider: protected: "):
            self._protected = True
        elif line.startswith("airflow_occ_provider: not protected: "):
            self._unprotected = line

    @property
    def own_instants(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has requested so far."""
        return self._instants.times

    def read(self, exit_code: int | None = None, *, committed: bool | None = None) -> Reading:
        """Return the attempt's outcome according to the log.

        :param exit_code: the driver's, negative for a signal; by default the one that its runner
            reported, if any.
        :param committed: ``False`` if the table shows that nothing was committed.
        """
        exit_code = self._end if exit_code is None else exit_code
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
        """Return the line in which Hudi named ``instant`` as a conflict's loser."""
        return self._conflict if self.rival_of(instant) else None

    def rival_of(self, instant: str) -> str | None:
        """Return the instant that Hudi named as the winner over ``instant``, if any."""
        match = _OPERATIONS.search(self._conflict or "")
        return match[2] if match and match[1] == instant else None

    def has_requested(self, time: str) -> bool:
        """Whether the driver itself requested an instant, of any action."""
        return self._instants.has_requested(time)

    def is_committing(self, instant: str) -> bool:
        """Whether a write has reached its commit."""
        return self._instants.is_committing(instant)

    def heartbeat_died(self, instant: str) -> bool:
        """Whether the timer of a write's heartbeat died."""
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
        trace = self._fatal or (None if self._reports else self._traces.last)
        if exit_code == 0 or trace is None or not trace.causes:
            return None
        if self._protected:  # the job caught every exception that did not leave the runner
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
        """Return the own instant that exceptions name, for a log without Hudi's records."""
        trace = self._fatal or self._traces.last
        pair = _OPERATIONS.search(self._conflict or "")
        named = named_instant(trace.causes) if trace else None
        return named or self._marked or (pair[1] if pair else None) or self._instants.unbeaten
