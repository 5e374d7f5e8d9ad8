"""One run of a Spark job: started, watched and settled.

Each step is recorded in the journal before it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import Any

from airflow_occ_provider.attempts.attempt_recorder import AttemptRecorder
from airflow_occ_provider.attempts.driver import Driver, Guard, Listener
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.settle import Settlement, settle
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.attempts.waits import DriverWait, WaitNeeded
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable


@dataclass(slots=True)
class Attempt:
    """A driver of a task run, from its start to its outcome by the table.

    :param explain: returns the settlement of a failed attempt with an explanation for people, given
        the settlement, the seconds for which the driver ran, and whether the try goes on to judge it.
    :param on_settled: called with the outcome, and the seconds for which the driver ran.
    :param rule: by which other writers judge the driver's heartbeats.
    :param commits: how many commits the job makes.
    :param path: base path of the table as the task names it, if that is another spelling.
    :param record: what is known of it so far, such as from earlier processes.
    """

    journal: InitVar[Journal]
    table: HudiTable
    signature: Signature
    driver: Driver
    _: KW_ONLY
    log: InitVar[Any]
    explain: Callable[[Settlement, float, bool], Settlement] = lambda settlement, *_: settlement
    on_settled: Callable[[Outcome, float], None] = lambda *_: None
    rule: HeartbeatRule = DEFAULT_RULE
    commits: Commits = Commits.ONE
    path: InitVar[str] = ""
    record: InitVar[AttemptRecord | None] = None
    recorder: AttemptRecorder = field(init=False)

    def __post_init__(self, journal: Journal, log: Any, path: str, record: AttemptRecord | None) -> None:
        self.recorder = AttemptRecorder(journal, path or self.table.path, log, record)

    def watch(
        self,
        guards: Sequence[Guard] = (),
        listeners: Sequence[Listener] = (),
        wait: Callable[[Handle], DriverWait] | None = None,
    ) -> None:
        """Start the driver and watch it to its end; end and settle it if interrupted.

        A driver that earlier processes have started is not started again.

        :param wait: returns the wait for a running driver, if this process is not to watch it.
        :raises FenceError: if something of the driver does not end.
        :raises WaitNeeded: if the driver runs, and this process is not to watch it.
        """
        driver = self.driver
        try:
            if driver.handle is None:
                driver.start(self.recorder.started)
            if wait and driver.handle and not driver.stop and driver.lives:
                raise WaitNeeded(wait(driver.handle))
            driver.follow((self.recorder.feed, *listeners), guards)
        except WaitNeeded:
            raise
        except BaseException as error:  # a task time-out, an interrupt: nothing is left behind
            driver.stop = driver.stop or driver.stop_for(error)
            if driver.was_refused:
                self.recorder.ended(1, log_read=True)
            driver.end()
            if driver.ended:
                self.settle()
            raise

    def settle(self, *, is_judged: bool = False) -> Settlement:
        """Read the ended driver's outcome from the table, and record it.

        :param is_judged: whether the try goes on to judge it; else the try is being ended itself.
        """
        recorder = self.recorder
        driver = self.driver
        code = driver.exit_code or 0
        recorder.ended(code, log_read=driver.log_read, was_stopped=driver.stop is not None)
        settlement = settle(
            self.table,
            self.signature,
            recorder.log,
            code,
            before=recorder.before,
            rule=self.rule,
            stop=driver.stop,
            log_is_read=driver.log_read,
            commits=self.commits,
        )
        if settlement.outcome is Outcome.JOB_ERROR and self._never_ran():
            settlement = replace(settlement, outcome=Outcome.NOT_STARTED)
        if settlement.error():
            settlement = self.explain(settlement, recorder.seconds, is_judged)
        recorder.settled(settlement)
        self.on_settled(settlement.outcome, recorder.seconds)
        return settlement

    def _never_ran(self) -> bool:
        """Whether a log that was read to its end shows nothing of the runner, which runs the job."""
        return self.driver.log_read and not self.recorder.log.shows_driver
