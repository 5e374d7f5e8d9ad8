"""Pure: from what our runner reports of a driver to the attempt's outcome.

The runner reports whether the driver is protected, what Hudi logs, the exceptions that ended the job,
and the end. Hudi's records show the rest: the requested instants, whether conflicts were checked, and,
as the commit's transaction starts, that all markers are made. Whether the attempt committed is for the
table to decide (``attempts.settle``).

What a driver prints is read too, where the task has it: what failed before the runner started, and
Hudi's records if the runner cannot follow their loggers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from airflow_occ_provider.attempts.log.facts import Chain, Entry, Fact, fatal_chain
from airflow_occ_provider.attempts.log.hudi_failures import (
    Diagnosis,
    diagnose,
    diagnose_conflict,
    marked_instant,
)
from airflow_occ_provider.attempts.log.own_instants import OwnInstants, operations_in
from airflow_occ_provider.attempts.outcome import HAVE_RIVALS, LogReading, Outcome, was_killed

_APPLICATION = re.compile(
    r"(?:Submitted application (?=application_)|Connected to Spark cluster with app ID )([\w-]+)"
)
_EXIT_UNPROTECTED = 78  # as in ``in_driver/run_job.py``
_KILLED = -9
_UNPROVEN = (
    "exit code 0 is not the driver's: its log does not show that it was protected, as if "
    "spark-submit, or a wrapper of it, had started the job elsewhere"
)
# What spark-submit prints if it fails before the runner starts.
_FAILURE = re.compile(r'(?:Exception in thread "[^"]*" )?[\w.$]*(?:Exception|Error)\b')


class DriverLog:
    """Reads what comes from a driver of ours.

    Its memory does not grow with that. ``application_id`` is the job's id at the cluster manager,
    empty until the log shows it; ``instants`` is what Hudi's records show; ``end`` is the exit code that
    the runner reported, ``None`` while it has reported none. If the runner cannot follow Hudi's loggers,
    their records are read as they are printed.
    """

    def __init__(self) -> None:
        self.application_id = ""
        self.instants = OwnInstants()
        self.protected = False
        self.unprotected: str | None = None
        self.fatal: Chain | None = None
        self.reports = False
        self.end: int | None = None
        self.reports_end = False
        self._followed = False
        self._failure = ""

    def take(self, entry: Entry) -> None:
        """Take what comes from the driver: a fact, or a line that is none."""
        if not isinstance(entry, str):
            self._take(entry)
            return
        line = entry.rstrip("\r\n")
        if not (self.reports or self._failure) and _FAILURE.match(line):
            self._failure = line
        (self.instants.feed_printed if self._followed else self.instants.feed)(line)
        if "appl" in line or "app ID" in line:
            named = _APPLICATION.search(line)
            self.application_id = named[1] if named else self.application_id

    def _take(self, fact: Fact) -> None:
        match fact["fact"]:
            case "protected":
                self.protected = self.reports = True
                self._followed = fact.get("followed") is True
                self.reports_end = fact.get("reports_end") is True
            case "not_protected":
                self.unprotected = f"not protected: {fact.get('reason')}"
            case "fatal":
                self.fatal = fatal_chain(fact)
                for line in self.fatal.lines:
                    self.instants.feed_error(line)
            case "left_out":  # the check of a write may be among them
                self.instants.has_other_checks = True
            case "end":
                self.end = int(fact.get("exit_code", 1))
            case "hudi":
                self._take_record(fact)

    def _take_record(self, fact: Fact) -> None:
        for line in str(fact.get("message", "")).splitlines():
            logged = f"INFO {fact.get('logger', '')}: {line}"
            self.instants.feed(logged, str(fact.get("thread", "")))

    @property
    def shows_driver(self) -> bool:
        """Whether the runner has started, so that the driver ran."""
        return bool(self.protected or self.unprotected or self.fatal or self.own_instants)

    @property
    def own_instants(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has requested so far."""
        return self.instants.times

    def exit_code(self, code: int, *, is_read: bool = True) -> int:
        """Return a driver's exit code; what its runner reported overrules a 0.

        A wrapper of ``spark-submit``, such as one that ends in ``| tee``, returns a code of its own. A
        runner that has promised to report each end, and has not, was ended with its driver.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end.
        """
        if code:
            return code
        if self.unprotected:
            return _EXIT_UNPROTECTED
        if self.end is not None:
            return self.end
        if self.fatal:
            return 1
        return _KILLED if self.reports_end and is_read else 0

    def unproven(self, code: int, *, is_read: bool = True) -> str:
        """Return why exit code 0 is not the driver's own; empty if it is.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end, so that what it lacks did not happen.
        """
        return "" if code or self.protected or self.unprotected or not is_read else _UNPROVEN

    def outcome_of(self, code: int, *, is_read: bool = True) -> tuple[int, LogReading]:
        """Return the exit code of a service's driver, and what its log says.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end.
        """
        unproven = self.unproven(code, is_read=is_read)
        if unproven:
            return _EXIT_UNPROTECTED, LogReading(Outcome.MISCONFIGURATION, lines=(unproven,))
        code = self.exit_code(code, is_read=is_read)
        return code, self.read(code).without_commit

    def ended_well(self, code: int, *, is_read: bool = True, was_stopped: bool = False) -> bool:
        """Whether the job ran to its end.

        What happens after the runner has reported that does not count: a driver that is then stopped,
        or killed while Spark shuts down, has done its work.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end.
        :param was_stopped: whether a guard ended the driver.
        """
        if self.end is not None and not self.unprotected:
            return self.end == 0 and (not code or was_killed(code))
        return not was_stopped and not self.exit_code(code, is_read=is_read)

    def read(self, exit_code: int | None = None) -> LogReading:
        """Return the attempt's outcome, for an attempt without a commit.

        :param exit_code: the driver's, negative for a signal; by default the one that its runner
            reported, if any.
        """
        exit_code = self.end if exit_code is None else exit_code
        death = None if exit_code == 0 else self.fatal
        diagnosis, lines = self._decide(exit_code, death)
        reading = reading_of(self.instants, diagnosis, lines, self._named_instant())
        return replace(reading, died=death is not None)

    def _decide(self, exit_code: int | None, death: Chain | None) -> tuple[Diagnosis, tuple[str, ...]]:
        if self.unprotected:
            # The error's one line has no room for a statement of SQL and what to do about it.
            remedy = f"Correct this; running again does not help: {self.unprotected}."
            return Diagnosis(Outcome.MISCONFIGURATION, remedy=remedy), (self.unprotected,)
        if exit_code is not None and was_killed(exit_code):
            return Diagnosis(Outcome.KILLED), (f"exit code {exit_code}",)
        diagnosis, lines = Diagnosis(Outcome.UNKNOWN), tuple(death.lines if death else ())
        if death:
            diagnosis = diagnose(death.causes, self.own_instants)
        elif exit_code:
            diagnosis, lines = Diagnosis(Outcome.JOB_ERROR), (self._failure or f"exit code {exit_code}",)
        # Hudi has refused an unfinished write, even if the job has handled that.
        conflict = self.instants.unfinished_conflict
        if not conflict:
            return diagnosis, lines
        new = () if conflict in lines else (conflict,)
        if diagnosis.outcome is Outcome.COMMIT_CONFLICT:
            return diagnosis, lines + new
        if not (death or exit_code):  # whether the job went on well only the table can show
            return diagnosis, new
        is_better = diagnosis.outcome in (Outcome.JOB_ERROR, Outcome.UNKNOWN) and not diagnosis.by_row
        return (diagnose_conflict(conflict), new + lines) if is_better else (diagnosis, lines)

    def _named_instant(self) -> str | None:
        """Return the own instant that the exceptions name which ended the job."""
        fatal = self.fatal or Chain()
        marked = (marked_instant(line) for line in reversed(fatal.lines))
        return diagnose(fatal.causes).instant or next(filter(None, marked), None)


def reading_of(
    instants: OwnInstants, diagnosis: Diagnosis, lines: Sequence[str], named: str | None
) -> LogReading:
    """Return the outcome of a driver with what its log says of its instants.

    :param lines: that decide, as they were logged.
    :param named: the own instant that another line names, for a log without Hudi's records.
    """
    loser, winner = next(filter(any, map(operations_in, lines)), (None, None))
    requested = instants.times
    written = loser if loser in requested else next(reversed(requested), loser)
    last_lost = next(reversed(instants.conflicts), None)
    dead = max(instants.dead_timers, default=None)
    return LogReading(
        diagnosis.outcome,
        instant=written or diagnosis.instant or named or last_lost or dead,
        rival=(winner or diagnosis.rival) if diagnosis.outcome in HAVE_RIVALS else None,
        lines=tuple(lines),
        cause=diagnosis.cause,
        advice=diagnosis.remedy,
        own_instants=requested,
        conflict_checked=instants.was_checked(requested[-1]) if requested else None,
    )
