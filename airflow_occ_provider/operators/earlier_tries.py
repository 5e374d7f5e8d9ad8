"""Before an attempt: what earlier tries of the task run have left is settled first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_occ_provider.errors import FenceError, TableUnreadableError
from airflow_occ_provider.hudi.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.attempt import remove_leftovers
from airflow_occ_provider.jobs.driver_process import ProcessTable
from airflow_occ_provider.jobs.record import Attempt
from airflow_occ_provider.jobs.survivor import Fence, Look, Settled, Wait, judge
from airflow_occ_provider.operators.driver import end_survivors
from airflow_occ_provider.operators.task_run import TaskRun
from airflow_occ_provider.storage.table import HudiTable

_FENCES = 3


class EarlierTries:
    """The attempts of a task run that may still reach the table.

    :param run: the task run.
    :param open_table: opens a table by its base path.
    :param rule: how the writers' heartbeats are judged.
    :param fence: has Hudi roll back the failed writes of a table.
    :param log: the task's log.
    """

    def __init__(
        self,
        run: TaskRun,
        open_table: Callable[[str], HudiTable],
        rule: HeartbeatRule,
        fence: Callable[[str], None],
        log: Any,
    ) -> None:
        self._run = run
        self._open_table = open_table
        self._rule = rule
        self._fence = fence
        self._log = log

    def end_drivers(self) -> None:
        """End the drivers of earlier tries that live on this host, and write down what was seen.

        :raises FenceError: if one does not end.
        """
        for attempt in self._run.record.unsettled:
            here = ProcessTable.here()
            if attempt.end or not (attempt.driver and here.proves(attempt.driver.table)):
                continue
            found, left = end_survivors(attempt.identity)
            if left:
                raise FenceError(
                    f"processes {left} of the driver of try {attempt.try_number} do not end",
                    remedy="look what they wait for (a dead mount?), end them, and clear the task",
                )
            end = f"ended by try {self._run.now.number}" if found else "found ended"
            self._log.info("The driver of try %s, %s, was %s.", attempt.try_number, attempt.driver, end)
            remove_leftovers(attempt.identity)
            self._run.keep(replace(attempt, end=end, ended_ms=_now_ms()))

    def close(self) -> None:
        """Settle them all: the commit that was to be made is in the table."""
        for attempt in self._run.record.unsettled:
            if attempt.end:
                table = self._open_table(attempt.table)
                look = Look.at(table.snapshot(), _now_ms(), self._rule)
                ghosts = [time_ for time_ in attempt.instants if time_ in look.pending]
                self._tell(attempt, self._retire(table, ghosts))
            self._run.settle(attempt)

    def settle(self) -> Wait | None:
        """Settle them one by one; what has to be waited for, if anything.

        :raises FenceError: if an instant cannot be fenced.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        for attempt in self._run.record.unsettled:
            wait = self._settle(attempt)
            if wait:
                waiting = self._run.wait(wait.reason, wait.instants, _now_ms())
                seconds = (_now_ms() - waiting.since_ms) / 1000
                self._log.info("Waiting (%.0f s so far): %s", seconds, wait.reason)
                return wait
        return None

    def _settle(self, attempt: Attempt) -> Wait | None:
        table = self._open_table(attempt.table)
        for fences_left in reversed(range(_FENCES)):
            look = Look.at(table.snapshot(missing_ok=not attempt.instants), _now_ms(), self._rule)
            step = judge(attempt, look, self._run.record.waiting)
            if isinstance(step, Wait):
                return step
            if isinstance(step, Settled):
                self._tell(attempt, self._retire(table, step.ghosts))
                self._run.settle(attempt)
                return None
            if fences_left:
                self._roll_back(attempt, step)
        raise FenceError(
            f"what try {attempt.try_number} left is still pending after {_FENCES - 1} lazy cleans",
            remedy="CALL rollback_to_instant for the instants that the log names, and clear the task",
        )

    def _roll_back(self, attempt: Attempt, fence: Fence) -> None:
        self._log.info(
            "Nobody saw the driver of try %s end (%s), and %s has stopped beating: Hudi's lazy clean "
            "is asked to roll it back, so that the driver cannot commit it any more.",
            attempt.try_number,
            attempt.driver,
            ", ".join(fence.instants),
        )
        self._fence(attempt.table)

    def _retire(self, table: HudiTable, ghosts: Sequence[str]) -> list[str]:
        retired = []
        for time_ in ghosts:
            with suppress(TableUnreadableError):  # then it ages out
                if table.retire_heartbeat(time_):
                    retired.append(time_)
        return retired

    def _tell(self, attempt: Attempt, retired: Sequence[str]) -> None:
        for instant in retired:
            self._log.info(
                "Try %s left instant %s unfinished; its heartbeat was removed, so that nobody waits "
                "for it and the next lazy clean rolls it back.",
                attempt.try_number,
                instant,
            )


def _now_ms() -> int:
    return round(time.time() * 1000)
