"""The conflict rules of ``retry`` as an Airflow retry policy."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import RetryDecision, RetryPolicy, TaskInstanceState, conf
from airflow.sdk.exceptions import (
    AirflowRuntimeError,
    AirflowTaskTimeout,
    ErrorType,
    TaskDeferralError,
)

from airflow_occ_provider.attempts.outcome import Outcome, timeout_line
from airflow_occ_provider.errors import (
    ExecutionTimeoutError,
    OccError,
    TaskEndedError,
    WriteConflictError,
)
from airflow_occ_provider.retry import DEFAULT_BUDGETS, ConflictRetry

if TYPE_CHECKING:
    from airflow.sdk import Context

_log = logging.getLogger(__name__)
# Airflow's UI folds the lines after a failed execute; the reason should be visible without a click.
_LEAVE_FOLDED_GROUP = "::endgroup::"
_SPENT_KEY = "hudi_retries"


_PACKAGE = __name__.partition(".")[0]
_AWAY = (ErrorType.API_SERVER_ERROR, ErrorType.GENERIC_ERROR)


class _DefaultRetries(int):
    """The ``retries`` of an operator whose user set none; a type that differs from a plain number's.

    ``partial()`` converts it to a plain number (Airflow 3.3.2), so a mapped task never has it.
    """

    __slots__ = ()


DEFAULT_RETRIES = _DefaultRetries(sum(DEFAULT_BUDGETS.values()))
"""Retries of an operator whose user set none: room for every budget, and for nothing else."""


class HudiConflictRetryPolicy(RetryPolicy):
    """Retry failures by a rival or the infrastructure, not the job's own errors.

    :param budgets: retries allowed per cause: ``conflict``, ``lock``, ``heartbeat``, ``killed``,
        ``storage``, ``airflow`` (its API server or triggerer failed) and ``worker`` (it died together
        with its driver); a cause that is left out keeps its default.
    :param base_delay: upper bound of the random wait before the first retry; it doubles for each next.
    :param max_delay: upper bound of every wait.
    """

    def __init__(
        self,
        *,
        budgets: Mapping[str, int] | None = None,
        base_delay: timedelta = timedelta(seconds=15),
        max_delay: timedelta = timedelta(minutes=5),
    ) -> None:
        unknown = set(budgets or ()) - set(DEFAULT_BUDGETS)
        if unknown:
            raise ValueError(f"unknown causes {sorted(unknown)}; known are {sorted(DEFAULT_BUDGETS)}")
        self.rules = ConflictRetry({**DEFAULT_BUDGETS, **(budgets or {})}, base_delay, max_delay)

    def warn_of_few(self, retries: int, log: Any) -> None:
        """Log a warning if Airflow's retries end before a conflict's budget does."""
        budget = self.rules.budgets["conflict"]
        if retries < budget:
            log.warning(
                "retries=%s is below the conflict budget of %s: Airflow stops retrying first.",
                retries,
                budget,
            )

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Context | None = None,
    ) -> RetryDecision:
        """Decide on a failed try, and count the retry in the task state store."""
        exception = _explained(exception, context)
        state = _decided_state(exception, context)
        if state:
            _log.info(_LEAVE_FOLDED_GROUP)
            _log.info("No retry is counted: the task was marked or cleared, and is %s.", state)
            return RetryDecision.default()
        spent = _Spent(context, max_tries)
        verdict = self.rules.judge(
            exception,
            spent.counts,
            _own_retries(context, max_tries),
            0.0 if _is_queued(exception, context) else random.random(),  # noqa: S311 - jitter
            infrastructure=_is_infrastructure(exception, context),
        )
        if verdict.cause:
            spent.add(verdict.cause)
        if verdict.retry is None:
            return RetryDecision.default()
        _log.info(_LEAVE_FOLDED_GROUP)
        if not verdict.retry or try_number > max_tries:
            ending = "; the task's retries are used up" if verdict.retry else ""
            _log.info("No retry: %s%s", verdict.reason, ending)
            return RetryDecision.fail(verdict.reason)
        wait = verdict.delay or timedelta()
        _log.info("Retry in %.0f s: %s", wait.total_seconds(), verdict.reason)
        return RetryDecision.retry(wait, verdict.reason)

    def grants(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context
    ) -> bool:
        """Whether a retry follows this failure, as far as known; counts nothing."""
        counts = _Spent(context, max_tries).counts
        verdict = self.rules.judge(exception, counts, _own_retries(context, max_tries), 0.0)
        return bool(verdict.retry) and try_number <= max_tries


class _Spent:
    """The granted retries, in the task state store; a clear by the user resets them."""

    def __init__(self, context: Context | None, max_tries: int) -> None:
        self._store: Any = cast("Any", context).get("task_state_store") if context else None
        self._max_tries = max_tries
        kept: Any = self._store.get(_SPENT_KEY) if self._store else None
        same = isinstance(kept, dict) and kept.get("max_tries") == max_tries
        self.counts: dict[str, int] = dict(kept["counts"]) if same else {}

    def add(self, cause: str) -> None:
        self.counts[cause] = self.counts.get(cause, 0) + 1
        if self._store:
            self._store.set(_SPENT_KEY, {"max_tries": self._max_tries, "counts": self.counts})


def _is_queued(exception: BaseException, context: Context | None) -> bool:
    """Whether the next try is queued, so that no random delay is needed."""
    task = cast("Any", context or {}).get("task")
    return isinstance(exception, WriteConflictError) and getattr(task, "admission", "off") != "off"


def _explained(exception: BaseException, context: Context | None) -> BaseException:
    """Return the error that says which of the task's time-outs is over, for Airflow's own exception."""
    if not isinstance(exception, AirflowTaskTimeout):
        return exception
    limit = getattr(context["task"], "execution_timeout", None) if context else None
    return ExecutionTimeoutError(timeout_line(limit), outcome=Outcome.TIMED_OUT)


def _decided_state(exception: BaseException, context: Context | None) -> str:
    """Return the state to which a user has set the task that was ended; empty if there is none.

    A worker that is stopped ends its tasks by the same signal, and leaves their state.
    """
    if context is None or not isinstance(exception, TaskEndedError):
        return ""
    ti = context["ti"]
    try:
        states = ti.get_task_states(
            dag_id=ti.dag_id, map_index=ti.map_index, task_ids=[ti.task_id], run_ids=[ti.run_id]
        )
    except (AirflowRuntimeError, OSError, EOFError):
        return ""
    state = next(iter(states.get(ti.run_id, {}).values()), None) or "removed"
    return "" if state == TaskInstanceState.RUNNING else str(state)


def _is_infrastructure(exception: BaseException, context: Context | None) -> bool:
    """Whether the job has no part in an error.

    The jobs of this provider's tasks run in drivers, whose failures are errors of the provider. Any
    other exception of such a task is a fault of its worker, such as a full disk, or of Airflow.
    """
    if isinstance(exception, AirflowRuntimeError) and exception.error.error in _AWAY:
        return True
    if isinstance(exception, OccError):
        return False
    task = type(context["task"]) if context else object
    ours = any(kind.__module__.startswith(f"{_PACKAGE}.") for kind in task.__mro__)
    return ours or isinstance(exception, TaskDeferralError)


def _own_retries(context: Context | None, max_tries: int) -> int:
    """Return how often the job's own errors are retried, by the user's arguments."""
    task = context["task"] if context else None
    given = getattr(task, "job_retries", None)
    if given is not None:
        return int(given)
    retries = getattr(task, "retries", None)
    map_index = getattr((context or {}).get("ti"), "map_index", None)
    is_mapped = map_index is not None and map_index >= 0
    if getattr(task, "has_default_retries", False) or (is_mapped and retries == DEFAULT_RETRIES):
        return conf.getint("core", "default_task_retries", fallback=0)
    return max_tries if retries is None else int(retries)
