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
from airflow_occ_provider.attempts.submitter import Handle, Traits
from airflow_occ_provider.attempts.waits import DriverWait, WaitNeeded
from airflow_occ_provider.errors import ConfigurationError
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
    :raises ConfigurationError: if a trait of the submitter makes no correct outcome possible.
    """

    journal: InitVar[Journal]
    table: HudiTable
    signature: Signature
    driver: Driver
    _: KW_ONLY
    log: InitVar[Any]
    explain: Callable[[Settlement, float, bool], Settlement] = lambda settlement, *_: settlement
    on_settled: Callable[[Outcome, float], None] = lambda *_: None
    needs_live_log: InitVar[bool] = False
    rule: HeartbeatRule = DEFAULT_RULE
    commits: Commits = Commits.ONE
    path: InitVar[str] = ""
    record: InitVar[AttemptRecord | None] = None
    recorder: AttemptRecorder = field(init=False)

    def __post_init__(
        self,
        journal: Journal,
        log: Any,
        needs_live_log: bool,
        path: str,
        record: AttemptRecord | None,
    ) -> None:
        refuse_unsafe(self.driver.submitter.traits, needs_live_log=needs_live_log)
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
                driver.start(self.signature.identity, self.recorder.started)
            if wait and driver.handle and not driver.stop and driver.lives:
                raise WaitNeeded(wait(driver.handle))
            driver.follow((self.recorder.feed, *listeners), guards)
            if not driver.log_read:
                self.recorder.recall(driver.facts)
        except WaitNeeded:
            raise
        except BaseException as error:  # a task time-out, an interrupt: nothing is left behind
            driver.stop = driver.stop or driver.stop_for(error)
            if driver.was_refused:
                self.recorder.ended(1, log_read=True)
            driver.recover(self.signature.identity, self.recorder.started)
            driver.end()
            if driver.ended:
                self.settle()
            raise

    def settle(self, *, is_judged: bool = False) -> Settlement:
        """Read the ended driver's outcome from the table, and record it.

        An end that is not final is not recorded as one: the next try waits for the heartbeats.

        :param is_judged: whether the try goes on to judge it; else the try is being ended itself.
        """
        recorder, driver = self.recorder, self.driver
        traits = self.driver.submitter.traits  # at this end: not each of them may be final
        is_final, log_is_read = traits.end_is_final, driver.has_whole_log
        code = driver.exit_code or 0
        if is_final:
            recorder.ended(code, log_read=log_is_read, was_stopped=driver.stop is not None)
        found = settle(
            self.table,
            self.signature,
            recorder.log,
            code,
            before=recorder.before,
            rule=self.rule,
            stop=driver.stop,
            retire=is_final,
            log_is_read=log_is_read,
            commits=self.commits,
        )
        if found.outcome is Outcome.JOB_ERROR and self._never_ran():
            found = replace(found, outcome=Outcome.NOT_STARTED)
        if found.error():
            found = self.explain(found, recorder.seconds, is_judged)
        recorder.settled(found)
        self.on_settled(found.outcome, recorder.seconds)
        return found

    def _never_ran(self) -> bool:
        """Whether a log that was read to its end shows nothing of the runner, which runs the job."""
        return self.driver.has_whole_log and not self.recorder.log.shows_driver


def refuse_unsafe(
    traits: Traits, *, needs_live_log: bool = False, needs_final_end: bool = False
) -> None:
    """Refuse a submitter with which an attempt would have no correct outcome.

    :param needs_live_log: whether a guard has to read the log while the driver runs: Hudi's lock has
        one name for all tables, so that a second table must end the driver.
    :param needs_final_end: whether only its lease keeps the job and others apart: it is released when
        the driver has ended, unless the driver itself refuses what it would commit later.
    :raises ConfigurationError: naming the trait.
    """
    field = "conn_id"
    if traits.start == "neither":
        trait = "start='neither'"
        why = "a driver that was submitted, but not recorded, could commit beside the next try's"
        remedy = "use a submitter whose drivers are gated or findable by their key"
    elif not traits.exit_code:
        trait = "exit_code=False"
        why = "a job that failed cannot be distinguished from one that wrote nothing"
        remedy = "use a submitter that gives the driver's exit code"
    elif needs_live_log and traits.logs != "live":
        field, trait = "lock_conn_id", f"logs='{traits.logs}'"
        why = "a second table is not seen before its data is written, under the lock of the first"
        remedy = "lock in ZooKeeper, where each table has its own lock"
    elif (
        needs_final_end
        and not traits.guards_commits
        and not (traits.proves_ends and traits.end_is_final)
    ):
        field, trait = "isolation", "proves_ends=False"
        why = "a driver may write on after its lease was released: not each of its ends is proven"
        remedy = "use 'snapshot', or run the driver in client mode, in YARN or in Kubernetes"
    else:
        return
    raise ConfigurationError(
        field, f"the trait {trait} of this submitter means that {why}", remedy=remedy
    )
