"""Looks at a driver that runs elsewhere: its state, its log, and its guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.attempts.attempt import planned_in
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop, EarlyStopGuard
from airflow_occ_provider.attempts.guards.heartbeat import HeartbeatAlarm
from airflow_occ_provider.attempts.guards.table_guards import TableGuards, TableView, TableViews
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.outcome import DoomedWrite, Stop
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Submitter, Unseen
from airflow_occ_provider.errors import OccError
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.format.instant import State
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule

_MOST_OF_PLANS = 8000  # characters


@dataclass(slots=True)
class RemoteWatch:
    """Watches a driver by separate looks, each of which returns soon.

    Its guards look at the table each time: the views bound how often that is a request.

    :param views: of its table, which the watches of other drivers may share.
    :param echo: takes each line of its log.
    :param early_stop: what happens once it is certain that Hudi will refuse its write.
    :param strategy: the writers' conflict resolution strategy, if it is known.
    """

    submitter: Submitter
    handle: Handle
    views: TableViews
    rule: HeartbeatRule
    logger: Any
    echo: Callable[[str], object]
    early_stop: EarlyStop = EarlyStop.OFF
    strategy: Strategy | None = None
    _log: DriverLog = field(default_factory=DriverLog, init=False)
    _early: EarlyStopGuard = field(init=False)
    _guards: TableGuards = field(init=False)
    _planned: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        alarm = HeartbeatAlarm(self._log, self.rule, self.logger, log_follows=False)
        self._early = EarlyStopGuard(self._log, self.early_stop, self.strategy, self.logger)
        self._guards = TableGuards(self.views, self._log, [alarm, self._early], self.logger)

    def look(self) -> Running | Ended | Unseen:
        """Return the driver's state, after reading its log and checking its heartbeat.

        The end is returned once the log is read as well.
        """
        state = self.submitter.poll(self.handle)
        if isinstance(state, Unseen):
            return state
        while entries := self.submitter.read(self.handle, 0):
            for entry in entries:
                self._take(entry)
        if isinstance(state, Running):
            self._guards.check()
            self._keep_plan(self.views.current)
        elif entries is None:
            self._keep_plan(self.views.newest)
        else:
            return Running()
        return state

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any."""
        return self._guards.stop

    @property
    def has_finished(self) -> bool:
        """Whether the job has reported that it ended well: it commits nothing any more."""
        return self._log.has_finished

    @property
    def doomed(self) -> DoomedWrite | None:
        """The finding that Hudi will refuse the driver's write, if there is one."""
        return self._early.doomed

    @property
    def planned(self) -> Mapping[str, Sequence[str]]:
        """The partitions of the driver's writes by their profiles, if they are few."""
        plans = {time: plan for time, plan in self._planned.items() if plan}
        size = sum(len(path) + 4 for plan in plans.values() for path in plan)
        return plans if size <= _MOST_OF_PLANS else {}

    def _keep_plan(self, view: Callable[[], TableView]) -> None:
        """Keep the workload profile of the youngest write: another writer may roll the write back."""
        instant = next(reversed(self._log.own_instants), "")
        if not instant or instant in self._planned:
            return
        with suppress(OccError, OSError):  # then the next try takes the whole table
            snapshot = view().snapshot
            write = snapshot.timeline.find(instant) if snapshot else None
            if snapshot and write and write.state is State.INFLIGHT:
                self._planned = {instant: planned_in(snapshot, instant)}

    def _take(self, entry: Entry) -> None:
        if isinstance(entry, str):
            self.echo(entry)
        self._log.take(entry)
