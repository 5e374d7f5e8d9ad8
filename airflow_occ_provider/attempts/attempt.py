"""One run of a Spark job: started, watched, settled and audited.

Each step is recorded in the journal before it is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import Any

from airflow_occ_provider.attempts.commit import MOST_PARTITIONS, Commit
from airflow_occ_provider.attempts.driver import Admitted, Driver, Guard, Listener
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.locks import LockConnection
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.outcome import Outcome, brief, unrepeated
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.record import NOTHING_BEFORE, AttemptRecord, TableBefore, TaskRecord
from airflow_occ_provider.attempts.settle import Settlement, settle
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.attempts.waits import DriverWait, WaitNeeded, dangling
from airflow_occ_provider.errors import (
    LeaseLostError,
    MisconfigurationError,
    OccError,
    StateStoreError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_monotonic = time.monotonic
_ASK_AGAIN_S = 30.0
NO_PLANS: Mapping[str, Sequence[str]] = {}
_WHERE = ("hoodie.write.lock.zookeeper.url", "hoodie.write.lock.zookeeper.base_path")
_LOCK_KEY = "hoodie.write.lock.zookeeper.lock_key"


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


class AttemptRecorder:
    """An attempt whose driver and instants are recorded while it runs.

    The driver is recorded before it starts; one that cannot be recorded does not start. Each instant
    is recorded once the driver has requested it. A failure to record one does not end the driver: it
    is recorded later, at the latest after the driver's end.

    :param table: base path of the table that it writes.
    :param attempt: what is known of it so far, such as from earlier processes.
    """

    def __init__(
        self, run: Journal, table: str, logger: Any, attempt: AttemptRecord | None = None
    ) -> None:
        self._run = run
        self._logger = logger
        self.log = DriverLog()
        self._ask_again_at: float | None = None
        self._noted: tuple[str, ...] = ()
        self._attempt = attempt or new_attempt(run, table)

    @property
    def before(self) -> TableBefore:
        """What the table had before the first attempt of the task run."""
        return self._run.record.since or NOTHING_BEFORE

    @property
    def seconds(self) -> float:
        """The seconds for which its driver has run, its start included."""
        return ((self._attempt.ended_ms or now_ms()) - self._attempt.started_ms) / 1000

    def ended(self, exit_code: int, *, log_read: bool, was_stopped: bool = False) -> None:
        """Record that the driver's end was observed.

        :param exit_code: the driver's, negative for a signal.
        :param log_read: whether its log was read to its end.
        :param was_stopped: whether a guard ended the driver.
        """
        well = self.log.ended_well(exit_code, is_read=log_read, was_stopped=was_stopped)
        code = self.log.exit_code(exit_code, is_read=log_read)
        end = f"exit code {code}" if code >= 0 else f"signal {-code}"
        self._keep(end=end, ended_ms=now_ms(), log_read=log_read, ended_well=well)

    def settled(self, settlement: Settlement) -> None:
        """Record its settlement by the table."""
        log_settlement(self._logger, settlement)
        is_settled = settlement.unreadable is None and self._attempt.log_read
        self._keep(outcome=str(settlement.outcome), settled=is_settled)

    def started(self, handle: Handle) -> None:
        """Record the driver, before it may do anything."""
        self._keep(driver=handle)

    def feed(self, entry: Entry) -> None:
        """Take what comes from the driver."""
        self.log.take(entry)
        self._note_instants()
        if self.log.end is not None and self._attempt.ended_well is None:
            # A worker that is lost while Spark shuts down has left this behind.
            self._keep_or_warn(ended_well=self.log.ended_well(0))
        if self._ask_again_at is not None and _monotonic() >= self._ask_again_at:
            self._keep_or_warn()

    def _note_instants(self) -> None:
        """Record what is new, and forget what has turned out to be another writer's.

        A process that continues an attempt may read the end of the log only: then its first instant is
        not the first one of the record.
        """
        instants = self.log.own_instants
        if instants == self._noted:
            return
        self._noted = instants
        for instant in instants:
            if instant not in self._attempt.instants:
                self.requested(instant)
        others = self.log.instants.taken.difference(instants)
        if others.intersection(self._attempt.instants):
            remaining = tuple(time for time in self._attempt.instants if time not in others)
            self._keep_or_warn(instants=remaining)

    def requested(self, instant: str) -> None:
        """Record a write that the driver requested, by its requested time."""
        self._logger.info("Hudi instant %s was requested by this driver.", instant)
        self._keep_or_warn(instants=(*self._attempt.instants, instant))
        self._run.publish_instants(self._attempt.instants)

    def _keep_or_warn(self, **changes: Any) -> None:
        try:
            self._keep(**changes)
            self._ask_again_at = None
        except StateStoreError as error:
            self._ask_again_at = _monotonic() + _ASK_AGAIN_S
            instants = ", ".join(self._attempt.instants)
            what = f"Hudi instant {instants}" if instants else "The driver's report of its end"
            self._logger.warning("%s is not recorded yet, the driver runs on: %s", what, error.message)

    def _keep(self, **changes: Any) -> None:
        changes = {"application_id": self.log.application_id, **changes}
        self._attempt = replace(self._attempt, **changes)
        self._run.keep(self._attempt)


def new_attempt(run: Journal, table: str) -> AttemptRecord:
    """Return the record of an attempt that begins now.

    :param table: base path of the table that it writes.
    """
    return AttemptRecord(
        try_number=run.now.number,
        max_tries=run.now.max_tries,
        identity=run.record.identity,
        table=table,
        started_ms=now_ms(),
    )


def log_settlement(logger: Any, settlement: Settlement) -> None:
    """Log the outcome of an attempt, and what decided it."""
    error = settlement.error()
    if error:
        logger.error(brief(error.message))
    logger.info(
        "Outcome: %s (instant %s, exit code %s).",
        settlement.outcome,
        settlement.instant or "-",
        settlement.exit_code,
    )
    if settlement.overruled:
        logger.warning(
            "early_stop was wrong or too late: %s is committed. The driver was ended because it had "
            "found that %s. Anything that the job does after its commit may not have run.",
            settlement.instant,
            settlement.overruled.line,
        )
    for line in unrepeated(settlement.lines):
        logger.info("Decided by: %s", line.removeprefix(": "))
    log_retired_heartbeats(logger, "The driver", settlement.retired)


def log_retired_heartbeats(logger: Any, origin: str, instants: Iterable[str]) -> None:
    """Log which heartbeats were removed.

    :param origin: what left them.
    :param instants: requested times of their instants.
    """
    for instant in instants:
        logger.info(
            "%s left instant %s unfinished; its heartbeat was removed, so that no writer waits for it "
            "and the next lazy clean rolls it back.",
            origin,
            instant,
        )


def audit_task_run(
    record: TaskRecord, snapshot: Snapshot, logger: Any, commits: Sequence[Commit], expected: Commits
) -> None:
    """Log if there are several commits, or files that a fenced driver left.

    :param commits: of the task run.
    :param expected: how many the job makes.
    :raises DanglingFilesError: if readers see such files.
    """
    if len(commits) > 1 and expected is Commits.ONE:
        logger.warning("This task run has %s commits in the table, not one.", len(commits))
    for orphaned in dangling(record.attempts, snapshot):
        if orphaned.visible:
            raise orphaned.error()
        logger.warning("%s. Readers do not see them. Remedy: %s", orphaned.message, orphaned.remedy)


def planned_partitions(
    table: HudiTable, instant: str | None, plans: Mapping[str, Sequence[str]] = NO_PLANS
) -> tuple[str, ...]:
    """Return the partitions of a write's workload profile; empty if unknown.

    Also empty for more than a lease can name: the next attempt then takes the whole table.

    :param instant: requested time of the write.
    :param plans: what was known of writes while they ran. Another writer may have rolled one back since.
    """
    plan = tuple(plans.get(instant, ())) if instant else ()
    try:
        return plan or (planned_in(table.snapshot(missing_ok=True), instant) if instant else ())
    except TableUnreadableError:
        return ()


def planned_in(snapshot: Snapshot, instant: str) -> tuple[str, ...]:
    """Return the partitions of a pending write's workload profile; empty if unknown.

    :raises TableUnreadableError: if the profile cannot be read.
    """
    write = snapshot.timeline.find(instant)
    if write is None or write.completed:
        return ()
    operation = snapshot.operation(write)
    if operation.may_touch_more or operation.overwrites_table:
        return ()
    touched = {partition for partition, _ in operation.file_groups}
    planned = touched | operation.adds_to | operation.overwrites
    return tuple(sorted(planned)) if len(planned) <= MOST_PARTITIONS else ()


def audit_scope(commit: Commit, admitted: Admitted, log: Any) -> None:
    """Report committed partitions outside the requested scope.

    :raises MisconfigurationError: if only the lease kept other writers away.
    """
    outside = admitted.outside(commit.metadata.partitions)
    if not outside:
        return
    message = (
        f"commit {commit.instant.time} wrote {', '.join(outside[:5])}"
        f"{f' and {len(outside) - 5} more' if len(outside) > 5 else ''}, outside its scope"
    )
    if admitted.is_fenced:
        log.warning("%s: writers of those partitions were not kept apart from it.", message)
        return
    raise MisconfigurationError(
        f"{message}, where nothing else kept others away",
        outcome=Outcome.MISCONFIGURATION,
        remedy="name every partition that the job writes in scope, or leave scope out; look for "
        "duplicates and lost updates in those partitions",
        committed=True,
    )


def audit_lease(commit: Commit, admitted: Admitted) -> None:
    """Refuse a commit that landed after its lease was lost, without other protection.

    :raises MisconfigurationError: then.
    """
    try:
        admitted.refuse_if_lost()
    except LeaseLostError as lost:
        raise MisconfigurationError(
            f"commit {commit.instant.time} landed, but {lost.message}",
            outcome=Outcome.MISCONFIGURATION,
            remedy="look for duplicates and lost updates of writers that committed meanwhile",
            committed=True,
        ) from lost


@dataclass(frozen=True, slots=True)
class CommitLockAudit:
    """Checks that Hudi's own lock in ZooKeeper was taken while an attempt ran."""

    lock: LockConnection
    options: Mapping[str, str]
    table: HudiTable

    def refuse_unlocked(self, commit: Commit, before: int | None, after: int | None) -> None:
        """Refuse a commit that was made without the lock.

        :param before: the lock's count before the attempt.
        :param after: its count after the job, before the lease was released if that was known in time.
        :raises MisconfigurationError: if no process took it meanwhile.
        """
        if after is None or after > (before or 0):
            return
        raise MisconfigurationError(
            f"commit {commit.instant.time} was made without Hudi's lock, which was not taken "
            "while the job ran",
            outcome=Outcome.MISCONFIGURATION,
            remedy="remove lock settings from the job's own write options, so that it locks where its "
            "neighbours do",
            committed=True,
        )

    def count(self) -> int | None:
        """Return how often the lock was acquired or released; ``None`` if unknown."""
        key = self.options.get(_LOCK_KEY) or self.table.config().name
        if not key or not self._is_in_view:
            return None
        try:
            lock = self.lock.commit_lock(self.table.path, key)
            if lock is None:
                return None
            with closing(lock):
                return lock.times_requested()
        except OccError:
            return None

    @property
    def _is_in_view(self) -> bool:
        ours = self.lock.options(self.table.path)
        return self.options.get(LOCK_PROVIDER) == ZOOKEEPER_LOCK_PROVIDER and all(
            self.options.get(key) == ours.get(key) for key in _WHERE
        )
