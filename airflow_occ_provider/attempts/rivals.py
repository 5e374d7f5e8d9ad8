"""The rivals of an attempt: the winner, those still pending, and waits for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NoReturn

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.outcome import MEANINGS, UNSIGNED, listed
from airflow_occ_provider.attempts.record import PreflightRecord
from airflow_occ_provider.attempts.scope import Claim, prefers_writers
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.waits import InstantsWait, WaitNeeded
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant, State
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.spelling import spell_owner, spell_time
from airflow_occ_provider.storage import writers
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.storage.writers import pending_table_services

_OPERATION = "hoodie.datasource.write.operation"
_ONLY_INSERTS = frozenset({"insert", "bulk_insert"})
_PENDING = frozenset({State.REQUESTED, State.INFLIGHT})
_UPDATES_STRATEGY = "hoodie.clustering.updates.strategy"
_REJECTS = "SparkRejectUpdateStrategy"
_ROLLS_BACK = "hoodie.clustering.rollback.pending.replacecommit.on.conflict"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Rival:
    """The winner of a conflict, as far as the table shows it.

    :param writer: its DAG and task, a description of what is no task, or empty.
    """

    writer: tuple[str, ...] | str = ""
    partitions: tuple[str, ...] = ()
    file_groups: int = 0

    def explained(self, settlement: Settlement, seconds: float, next_try: str) -> Settlement:
        """Return a failed attempt's settlement with an explanation for people.

        :param next_try: what happens next to the task; empty if it is not known.
        """
        failure = replace(
            settlement.described(),
            writer=self.writer,
            partitions=self.partitions,
            file_groups=self.file_groups,
            seconds=seconds,
            next_try=next_try,
        )
        return replace(settlement, failure=failure)


def find_rival(table: HudiTable, instant: str | None, rival: str | None) -> Rival:
    """Return what the table shows of a conflict; nothing if it cannot be read.

    :param instant: requested time of the loser.
    :param rival: requested time of the winner.
    """
    if rival is None:
        return Rival()
    try:
        snapshot = table.snapshot(missing_ok=True)
        winner = snapshot.timeline.find(rival)
        if winner is None:
            return Rival()
        loser = snapshot.timeline.find(instant) if instant else None
        both = _touched(snapshot, loser) & _touched(snapshot, winner)
        writer = _writer(snapshot, winner)
    except TableUnreadableError:
        return Rival()
    return Rival(writer, tuple(sorted({partition for partition, _ in both})), len(both))


def _touched(snapshot: Snapshot, instant: Instant | None) -> frozenset[FileGroupId]:
    if instant is None:
        return frozenset()
    operation = snapshot.operation(instant)
    return operation.file_groups | operation.replaced


def _writer(snapshot: Snapshot, winner: Instant) -> tuple[str, ...] | str:
    metadata = snapshot.reader.commit(winner) if winner.completed else None
    if winner.action in TABLE_SERVICE_ACTIONS or (metadata and metadata.is_table_service):
        return "a table service"
    if metadata is None:
        return "a running writer"
    signature = Signature.from_extra(metadata.extra)
    if signature is None:
        return UNSIGNED
    return signature.task_run.task_path


def pending_rivals(
    table: HudiTable,
    settlement: Settlement,
    partitions: Collection[str],
    own_times: Collection[str],
    rule: HeartbeatRule,
    *,
    clusterings: bool = True,
) -> tuple[str, ...]:
    """Return the pending instants that would refuse a lost attempt again.

    The rival that Hudi named, if it is still pending. If Hudi named none: the pending clusterings and
    the writers with a live heartbeat that may touch the same partitions. Not a writer that is only
    requested: it has no markers yet. After a clustering refused the attempt, only the clusterings;
    after an early conflict none of them, since early detection ignores plans.

    :param partitions: what the attempt was about to write; empty for the whole table.
    :param own_times: requested times of the task run's own instants.
    :param clusterings: whether a pending clustering may refuse the attempt.
    """
    meaning = MEANINGS[settlement.outcome]
    try:
        snapshot = table.snapshot(missing_ok=True)
        may_refuse = clusterings and meaning.clusterings_refuse
        operations = pending_clusterings(snapshot, rule) if may_refuse else []
        operations += living_writers(table, snapshot, rule) if meaning.writers_refuse else []
    except TableUnreadableError:
        return ()  # the next try runs at once, as if none were pending
    rivals = [operation for operation in operations if operation.instant.time not in own_times]
    if settlement.rival:
        return tuple(rival.instant.time for rival in rivals if rival.instant.time == settlement.rival)
    return tuple(rival.instant.time for rival in rivals if _may_touch(rival, partitions))


def still_pending(table: HudiTable, instants: Sequence[str], rule: HeartbeatRule) -> tuple[str, ...]:
    """Return the instants that are pending and whose heartbeat has not expired."""
    observation = WriterWatch(table, rule).observe()
    return tuple(time for time in instants if observation.writer(time).fate.beating)


def pending_clusterings(snapshot: Snapshot, rule: HeartbeatRule) -> list[ConcurrentOperation]:
    """Return the pending clusterings, whether a process runs them or not.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    services = pending_table_services(snapshot, rule)
    return [
        service.operation
        for service in services
        if service.operation.operation_type in Service.CLUSTERING.kinds
    ]


def living_writers(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule
) -> list[ConcurrentOperation]:
    """Return the inflight writes whose heartbeat has not expired.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    living = (writer.operation for writer in writers.living_writers(table, snapshot, rule))
    return [operation for operation in living if operation.instant.state is State.INFLIGHT]


def busy_writers(
    table: HudiTable,
    partitions: Collection[str] | None,
    rule: HeartbeatRule,
    previous: Snapshot | None = None,
) -> tuple[str, ...]:
    """Return the requested times of live writes that may touch some partitions.

    A write that is only requested may touch any.

    :param partitions: partition paths, each with everything below it; ``None`` for the whole table.
    :param previous: an earlier snapshot, which saves requests.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    snapshot = table.snapshot(previous, missing_ok=True)
    live = (writer.operation for writer in writers.living_writers(table, snapshot, rule))
    return tuple(
        operation.instant.time
        for operation in live
        if operation.instant.state is State.REQUESTED or _may_touch(operation, partitions or ())
    )


def _may_touch(operation: ConcurrentOperation, partitions: Collection[str]) -> bool:
    if not partitions or operation.may_touch_more or operation.overwrites_table:
        return True
    files = {partition for partition, _ in operation.file_groups}
    return meet(files | operation.adds_to | operation.overwrites, partitions)


def meet(some: Iterable[str], others: Collection[str]) -> bool:
    """Return whether a path of some is, or is above or below, a path of others."""
    slashed = tuple(f"{other}/" for other in others)
    return any(
        f"{path}/".startswith(other) or other.startswith(f"{path}/")
        for path in some
        for other in slashed
    )


@dataclass(frozen=True, slots=True)
class Elder:
    """A pending instant that a driver which starts now would lose to.

    :param operation: Hudi's operation type.
    :param writer: what runs or planned it, for people.
    :param partitions: where it meets the driver's work; empty for the whole table.
    """

    instant: str
    operation: str
    writer: str
    partitions: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = any(self.partitions)  # an unpartitioned table has one partition with an empty name
        where = f" of {listed(self.partitions, _SHOWN, 40)}" if named else ""
        return f"{self.instant} ({self.operation}{where} {self.writer})"


def find_elders(
    table: HudiTable,
    snapshot: Snapshot,
    partitions: Collection[str],
    own_times: Collection[str],
    rule: HeartbeatRule,
    *,
    clusterings: Collection[State] = _PENDING,
) -> tuple[Elder, ...]:
    """Return the pending instants that certainly touch what a driver will write.

    A live writer counts if its workload profile or its markers name existing file groups of one of the
    partitions, or it overwrites one. New records alone do not count: Hudi may put them into new file
    groups. A clustering counts while its plan is pending, since Hudi refuses updates of its file groups
    whether a process runs it or not (1.2.0, ``SparkRejectUpdateStrategy``).

    :param partitions: what the driver will write; if empty, only an overwrite of the whole table counts.
    :param own_times: requested times of the task run's own instants.
    :param clusterings: the states in which a clustering refuses the driver's updates.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    if all(instant.completed for instant in snapshot.timeline):
        return ()
    plans = pending_clusterings(snapshot, rule) if clusterings and partitions else []
    operations = [plan for plan in plans if plan.instant.state in clusterings]
    operations += living_writers(table, snapshot, rule)
    others = [operation for operation in operations if operation.instant.time not in own_times]
    elders = (_elder(snapshot, operation, partitions) for operation in others)
    return tuple(sorted(filter(None, elders), key=lambda elder: elder.instant))


def refusing_states(options: Mapping[str, str]) -> frozenset[State]:
    """Return in which states a pending clustering refuses a job's updates.

    As far as the job's options show it: a plan may stay pending for days, and a job that only inserts
    does not lose to it. So of a job whose operation is not known, only a clustering that has begun holds
    up the start.
    """
    operation = options.get(_OPERATION, "").strip().lower()
    if operation in _ONLY_INSERTS or not _rejects_updates(options):
        return frozenset()
    return _PENDING if operation else frozenset({State.INFLIGHT})


def _rejects_updates(options: Mapping[str, str]) -> bool:
    """Whether Hudi refuses updates of what a clustering plans; 1.2 does not if writers are preferred."""
    rejects = options.get(_UPDATES_STRATEGY, _REJECTS).strip().endswith(_REJECTS)
    rolls_back = options.get(_ROLLS_BACK, "").strip().lower() == "true"
    return rejects and not rolls_back and not prefers_writers(options)


def _elder(
    snapshot: Snapshot, operation: ConcurrentOperation, partitions: Collection[str]
) -> Elder | None:
    certain = {partition for partition, _ in operation.existing} | operation.overwrites
    shared = sorted(path for path in certain if meet([path], partitions))
    if operation.overwrites_table:
        shared = []
    elif not shared:
        return None
    kind = operation.operation_type
    writer = _origin(snapshot, operation)
    return Elder(operation.instant.time, kind, writer, tuple(shared))


def _origin(snapshot: Snapshot, operation: ConcurrentOperation) -> str:
    """Name what runs an instant. Hudi copies a signature into a plan, not into a profile."""
    if not operation.is_table_service:
        return "by a running writer"
    signature = Signature.from_extra(snapshot.reader.plan_extra(operation.instant))
    return (
        f"planned by {spell_owner(signature.task_run.task_path)}" if signature else "by an unsigned plan"
    )


@dataclass(frozen=True, slots=True)
class Preflight:
    """Makes a try wait once for what its driver would lose to.

    Only what the try found at first counts, so a stream that always has a pending write never blocks
    it for ever. The lease is released meanwhile: the task that runs a pending clustering may be queued
    for it.

    :param path: base path of the table, as the attempts recorded it.
    :param timeout: how long to wait at most; zero to never look.
    """

    run: Journal
    table: HudiTable
    path: str
    rule: HeartbeatRule
    timeout: timedelta
    log: Any

    def begin(self, claim: Claim, options: Mapping[str, str], snapshot: Snapshot) -> None:
        """Look at the table, unless this try has waited already.

        :param claim: of the task; what an earlier try was about to write adds to its partitions.
        :param options: of the job, as far as they are known.
        :param snapshot: of the table, made under the lease.
        :raises WaitNeeded: if the driver would lose to a pending instant.
        """
        record = self.run.record
        has_waited = record.preflight and record.preflight.try_number == self.run.now.number
        if has_waited or self.timeout <= timedelta(0):
            return
        partitions = (*(claim.partitions or ()), *record.planned)
        own_times = record.instants_in(self.path)
        clusterings = refusing_states(options)
        try:
            elders = find_elders(
                self.table, snapshot, partitions, own_times, self.rule, clusterings=clusterings
            )
        except TableUnreadableError as error:
            self._log_unreadable(error)
            return
        if elders:
            named = listed(list(map(str, elders)), _SHOWN, 200)
            reason = f"waiting for {named}, to which the job would lose"
            times = tuple(elder.instant for elder in elders)
            self._wait(self.run.begin_preflight(reason, times, now_ms()), times)

    def go_on(self) -> None:
        """Continue the wait of this try, if there is one.

        :raises WaitNeeded: if time is left, and an instant that the try found is still pending.
        """
        preflight = self.run.record.preflight
        if preflight is None or not preflight.instants:
            return
        if preflight.try_number == self.run.now.number:
            pending = self._pending(preflight)
            if pending and now_ms() < self._deadline_ms(preflight):
                self._wait(preflight, pending)
            if pending:
                self.log.warning(
                    "Preflight timed out after %s: still pending is %s. The job starts, and Hudi's "
                    "check decides.",
                    self.timeout,
                    listed(pending, _SHOWN, 40),
                )
        self.run.end_preflight()

    def _pending(self, preflight: PreflightRecord) -> tuple[str, ...]:
        try:
            return still_pending(self.table, preflight.instants, self.rule)
        except TableUnreadableError as error:
            self._log_unreadable(error)
            return ()

    def _wait(self, preflight: PreflightRecord, pending: tuple[str, ...]) -> NoReturn:
        deadline_ms = self._deadline_ms(preflight)
        waiting = self.run.record.waiting
        self.log.info(
            "Preflight, without a worker slot and a lease, until %s at most: %s.",
            spell_time(deadline_ms),
            waiting.reason if waiting else listed(pending, _SHOWN, 40),
        )
        raise WaitNeeded(InstantsWait(pending, self.rule, deadline_ms=deadline_ms))

    def _deadline_ms(self, preflight: PreflightRecord) -> int:
        return preflight.since_ms + round(self.timeout.total_seconds() * 1000)

    def _log_unreadable(self, error: TableUnreadableError) -> None:
        self.log.warning("The job starts without preflight: %s", error.message)


def resume_unwatched(run: Journal, reason: str, log: Any) -> None:
    """Go on after a wait for instants that the triggerer could not watch.

    :raises TableUnreadableError: unless it was a preflight, without which the job starts.
    """
    preflight = run.record.preflight
    is_preflight = preflight and preflight.instants and preflight.try_number == run.now.number
    if not is_preflight:
        raise TableUnreadableError(reason)
    log.warning("The job starts without preflight: %s", reason)
    run.end_preflight()
