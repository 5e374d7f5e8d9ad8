"""What a task run remembers across its tries, kept in Airflow's task state store."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    StateStoreError,
    TableUnreadableError,
)
from airflow_occ_provider.jobs.record import (
    INSTANTS_KEY,
    RECORD_KEY,
    Attempt,
    Place,
    TaskRecord,
    TryKey,
    Waiting,
)

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

_log = logging.getLogger(__name__)
_TRIES = 3
_PAUSE_S = 1.0


class TaskRun:
    """The record of a task run, as one of its tries reads and goes on writing it.

    Airflow gives every try a task instance of its own, and refuses what one writes that is none any
    more: so a try that was given up, but lives, cannot start a driver once the next one is due, as
    a driver has to be written down first.

    :param context: of the try.
    :raises CommitStateUnknownError: if the record was written by another release.
    :raises StateStoreError: if the state store does not answer.
    """

    def __init__(self, context: Context) -> None:
        self._store: Any = cast("Any", context).get("task_state_store")
        ti = self._ti = context["ti"]
        self.now = TryKey(ti.try_number, ti.max_tries or 0)
        self.record = self._read()

    def begin(self, digest: str, since: str) -> None:
        """Say which work the identity stands for, where no attempt has said it yet.

        :param digest: of the rendered work.
        :param since: the table's youngest completed write, or empty.
        """
        if self.record.since is None:
            self._save(replace(self.record, digest=digest, since=since))

    def abandon(self, digest: str) -> None:
        """Take a fresh identity: the arguments are others, and nothing was committed with the old."""
        self._save(self.record.abandon(digest))

    def keep(self, attempt: Attempt) -> None:
        """Write an attempt down."""
        self._save(self.record.with_attempt(attempt))

    def tell_instants(self, instants: Sequence[str]) -> None:
        """Tell the run's other tasks which writes are this one's; they ask again if that fails."""
        try:
            self._ti.xcom_push(key=INSTANTS_KEY, value=list(instants))
        except (AirflowRuntimeError, OSError, EOFError) as error:
            _log.warning("The instants were not told to other tasks: %s", error)

    def settle(self, attempt: Attempt) -> None:
        """Write down that nothing of an attempt can reach the table any more."""
        settled = replace(attempt, settled=True)
        self._save(replace(self.record.with_attempt(settled), waiting=None))

    def wait(self, reason: str, instants: tuple[str, ...], now_ms: int) -> Waiting:
        """Write down what is waited for; a wait that goes on keeps its begin."""
        before = self.record.waiting
        waiting = Waiting(reason, before.since_ms if before else now_ms, instants)
        self._save(replace(self.record, waiting=waiting))
        return waiting

    def stand(self, place: Place | None) -> None:
        """Write down where the run stands in line."""
        if place != self.record.place:
            self._save(replace(self.record, place=place))

    def escalate(self, partitions: tuple[str, ...], rivals: tuple[str, ...] = ()) -> None:
        """Record what the next attempt has to write alone, and which instants it waits for first.

        :param partitions: empty for the whole table.
        :param rivals: requested times of pending instants of others.
        """
        self._save(replace(self.record, escalation=partitions, rivals=rivals))

    def forget_rivals(self) -> None:
        """Record that the rivals have ended."""
        if self.record.rivals or self.record.waiting:
            self._save(replace(self.record, rivals=(), waiting=None))

    def stop_waiting(self) -> None:
        """Write down that nothing is waited for; a later wait begins anew."""
        self._save(replace(self.record, waiting=None))

    def succeed(self) -> None:
        """Write down that the run did its work; called last."""
        self._save(replace(self.record, succeeded=True, waiting=None))

    def _read(self) -> TaskRecord:
        kept = self._ask("get", RECORD_KEY) if self._store is not None else None
        if kept is None:
            if self.now.number > 1:
                _log.warning("There is no record of the tries before %s.", self.now.number)
            return self._save(TaskRecord())
        try:
            record = TaskRecord.from_json(kept)
        except (ValueError, KeyError, TypeError) as error:
            raise CommitStateUnknownError(
                f"commit state unknown: the task's record {RECORD_KEY} cannot be understood ({error})",
                remedy="run the task with the release that wrote it, or, if no commit of this run is "
                f"in the table, delete {RECORD_KEY} from the task's state store",
            ) from error
        return self._save(record.again() if record.wants_again(self.now) else record)

    def _save(self, record: TaskRecord) -> TaskRecord:
        self.record = replace(record, last_try=self.now)
        if self._store is not None:
            self._ask("set", RECORD_KEY, self.record.to_json(), retention=NEVER_EXPIRE)
        return self.record

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        for left in reversed(range(_TRIES)):
            try:
                return getattr(self._store, method)(*arguments, **options)
            except (AirflowRuntimeError, OSError, EOFError) as error:
                if not left:
                    raise StateStoreError(
                        f"Airflow's task state store did not {method} the record of try "
                        f"{self.now.number}: {error}",
                        remedy="nothing, if a younger try of the task is running; else look at the API "
                        "server's log",
                    ) from error
                time.sleep(_PAUSE_S)
        raise AssertionError("not reached")


@contextmanager
def known_state(run: TaskRun) -> Iterator[None]:
    """Have a table that cannot be read mean an unknown commit state, once an attempt has begun.

    :raises TableUnreadableError: in those words.
    """
    try:
        yield
    except TableUnreadableError as error:
        if not run.record.attempts:
            raise
        raise error.as_commit_state_unknown() from error


def now_ms() -> int:
    """Return the epoch milliseconds of this host's clock."""
    return round(time.time() * 1000)


def show_fields(task: BaseOperator) -> None:
    """Have the UI show a running task's fields as they are now, as Airflow does at the task's end."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import SetRenderedFields

    try:
        fields = task_runner._serialize_rendered_fields(task)
        task_runner.SUPERVISOR_COMMS.send(SetRenderedFields(rendered_fields=fields))
    except Exception as error:  # noqa: BLE001 - what the UI shows must not fail the job
        _log.debug("The UI does not show the options yet: %s", error)


def is_dag_test() -> bool:
    """Whether this process runs the whole DAG itself, one task after the other (``dag.test()``)."""
    from airflow.sdk.execution_time import task_runner

    return type(getattr(task_runner, "SUPERVISOR_COMMS", None)).__name__ == "InProcessSupervisorComms"
