"""One run of a Spark job: started, watched and settled.

Each step is recorded in the journal before it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_occ_provider.attempts.attempt_recorder import AttemptRecorder
from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.guards.guard import Guard
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.settle import Settlement, settle
from airflow_occ_provider.attempts.submitter import Submitter
from airflow_occ_provider.attempts.traits import refuse_unsafe
from airflow_occ_provider.storage.table import HudiTable


class Attempt:
    """A driver of a task run, from its start to its outcome by the table.

    :param journal: of the task run.
    :param table: the table that the driver writes.
    :param signature: what its commits are signed with.
    :param submitter: runs it.
    :param log: the task's log.
    :param explain: returns the settlement of a failed attempt with an explanation for people, given
        the settlement, the seconds for which the driver ran, and whether the try goes on to judge it.
    :param on_settled: called with the outcome, and the seconds for which the driver ran.
    :param needs_live_log: whether a guard has to read the log while the driver runs.
    :param path: base path of the table as the task names it, if that is another spelling.
    :raises ConfigurationError: if a trait of the submitter makes no correct outcome possible.
    """

    def __init__(
        self,
        journal: Journal,
        table: HudiTable,
        signature: Signature,
        submitter: Submitter,
        *,
        log: Any,
        explain: Callable[[Settlement, float, bool], Settlement] = lambda settlement, *_: settlement,
        on_settled: Callable[[Outcome, float], None] = lambda *_: None,
        needs_live_log: bool = False,
        path: str = "",
    ) -> None:
        refuse_unsafe(submitter.traits, needs_live_log=needs_live_log)
        self._table = table
        self._signature = signature
        self._traits = submitter.traits
        self._explain = explain
        self._on_settled = on_settled
        self.driver = Driver(submitter)
        self.recorder = AttemptRecorder(journal, path or table.path, log)

    def run(
        self, guards: Sequence[Guard] = (), echo: Callable[[str], object] = lambda _: None
    ) -> Settlement:
        """Run the driver once and return its settlement by the table.

        :param guards: what may stop the driver.
        :param echo: takes each line of the driver's log.
        :raises FenceError: if a process of the driver does not end.
        """
        self.watch(guards, echo)
        return self.settle(is_judged=True)

    def watch(
        self, guards: Sequence[Guard] = (), echo: Callable[[str], object] = lambda _: None
    ) -> None:
        """Start the driver and watch it to its end; end and settle it if interrupted.

        :raises FenceError: if something of the driver does not end.
        """
        try:
            self.driver.run(self._signature.identity, self.recorder.follower, guards, echo)
        except BaseException:  # a task time-out, an interrupt: nothing is left behind
            self.driver.end()
            if self.driver.ended:
                self.settle()
            raise
        self.driver.end()
        self.driver.refuse_living()

    def settle(self, *, is_judged: bool = False) -> Settlement:
        """Read the ended driver's outcome from the table, and record it.

        An end that is not final is not recorded as one: the next try waits for the heartbeats.

        :param is_judged: whether the try goes on to judge it; else the try is being ended itself.
        """
        is_final, code = self._traits.end_is_final, self.driver.exit_code
        log_read = self.driver.log_read and self._traits.logs != "none"
        if is_final:
            self.recorder.ended(code or 0, log_read=log_read)
        found = settle(
            self._table,
            self._signature,
            self.recorder.log,
            code or 0,
            stop=self.driver.stop,
            retire=is_final,
        )
        if found.error():
            found = self._explain(found, self.recorder.seconds, is_judged)
        self.recorder.settled(found)
        self._on_settled(found.outcome, self.recorder.seconds)
        return found
