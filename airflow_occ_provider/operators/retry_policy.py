"""The conflict rules of ``retry`` as an Airflow retry policy."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import RetryAction, RetryDecision, RetryPolicy, TaskInstanceState, conf
from airflow.sdk.exceptions import (
    AirflowRuntimeError,
    AirflowTaskTimeout,
    ErrorType,
    TaskDeferralError,
)

from airflow_occ_provider.attempts.outcome import Outcome, timeout_line
from airflow_occ_provider.attempts.typed_values import duration, whole_number
from airflow_occ_provider.errors import (
    ExecutionTimeoutError,
    OccError,
    TaskEndedError,
    WriteConflictError,
)
from airflow_occ_provider.retry import DEFAULT_BUDGETS, ConflictRetry

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

_log = logging.getLogger(__name__)
# Airflow's UI folds the lines after a failed execute; the reason should be visible without a click.
_LEAVE_FOLDED_GROUP = "::endgroup::"
_SPENT_KEY = "hudi_retries"


_PACKAGE = __name__.partition(".")[0]
_AWAY = (ErrorType.API_SERVER_ERROR, ErrorType.GENERIC_ERROR)


class HudiConflictRetryPolicy(RetryPolicy):
    """Retry failures by a rival or the infrastructure, not the job's own errors.

    An operator of this provider has one in any case, and adds its budgets to ``retries``. Any other
    retry policy that the task, its ``default_args`` or a cluster policy gives becomes ``otherwise``.

    Example::

        HudiWriteOperator(
            task_id="trips",
            application="jobs/trips.py",
            table="s3a://lake/trips",
            retry_policy=HudiConflictRetryPolicy(budgets={"conflict": 10}),
        )

    :param budgets: retries allowed per cause: ``conflict``, ``lock``, ``heartbeat``, ``hudi``,
        ``killed``, ``timeout`` (of the task), ``storage``, ``airflow`` (its API server or triggerer
        failed) and ``worker`` (it died together with its driver); a cause that is left out keeps its
        default.
    :param base_delay: upper bound of the random wait before the first retry, as ``timedelta`` or in
        seconds; it doubles for each next.
    :param max_delay: upper bound of every wait.
    :param otherwise: decides on the job's own errors, within the task's ``retries``: it gets the number
        of such a failure as ``try_number``, and the task's ``retries`` as ``max_tries``. It may also
        fail a task for an exception of Airflow or the worker. Default: Airflow's own rules.
    """

    def __init__(
        self,
        *,
        budgets: Mapping[str, int] | None = None,
        base_delay: timedelta | float = timedelta(seconds=15),
        max_delay: timedelta | float = timedelta(minutes=5),
        otherwise: RetryPolicy | None = None,
    ) -> None:
        unknown = set(budgets or ()) - set(DEFAULT_BUDGETS)
        if unknown:
            raise ValueError(f"unknown causes {sorted(unknown)}; known are {sorted(DEFAULT_BUDGETS)}")
        counts = {
            cause: whole_number(f"budgets[{cause!r}]", count, at_least=0)
            for cause, count in {**DEFAULT_BUDGETS, **(budgets or {})}.items()
        }
        self.rules = ConflictRetry(
            counts, duration("base_delay", base_delay), duration("max_delay", max_delay)
        )
        self.otherwise = otherwise

    def with_otherwise(self, policy: RetryPolicy | None) -> HudiConflictRetryPolicy:
        """Return this policy with another one for the job's own errors."""
        rules = self.rules
        return HudiConflictRetryPolicy(
            budgets=rules.budgets,
            base_delay=rules.base_delay,
            max_delay=rules.max_delay,
            otherwise=policy,
        )

    @property
    def retries(self) -> int:
        """The retries that all budgets need together."""
        return sum(self.rules.budgets.values())

    def warn_of_few(self, max_tries: int, own_retries: int, log: Any) -> None:
        """Warn if Airflow retries the task instance too few times for the budgets.

        :param max_tries: of the task instance, as the scheduler counts them.
        :param own_retries: the task's own ``retries``.
        """
        needed = own_retries + self.retries
        if max_tries < needed:
            log.warning(
                "max_tries: Airflow retries this task %d times at most; its own retries (%d) and the "
                "budgets for conflicts and infrastructure (%d) need %d. Let no cluster policy lower "
                "`retries`; clear the task if it began with an older version of its DAG.",
                *(max_tries, own_retries, self.retries, needed),
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
        is_infrastructure = _is_infrastructure(exception, context)
        if self.otherwise and is_infrastructure:
            decision = self.otherwise.evaluate(exception, try_number, max_tries, context)
            if decision.action is RetryAction.FAIL:
                return decision
        spent = _Spent(context, max_tries)
        own_retries = _own_retries(context, max_tries)
        verdict = self.rules.judge(
            exception,
            spent.counts,
            own_retries,
            0.0 if _is_queued(exception, context) else random.random(),  # noqa: S311 - jitter
            infrastructure=is_infrastructure,
        )
        if verdict.cause:
            spent.add(verdict.cause)
        if verdict.retry is None:
            return self._on_own_error(exception, spent.counts["job"], own_retries, context)
        _log.info(_LEAVE_FOLDED_GROUP)
        if not verdict.retry or try_number > max_tries:
            ending = "; the task's retries are used up" if verdict.retry else ""
            _log.info("No retry: %s%s", verdict.reason, ending)
            return RetryDecision.fail(verdict.reason)
        wait = verdict.delay or timedelta()
        _log.info("Retry in %.0f s: %s", wait.total_seconds(), verdict.reason)
        return RetryDecision.retry(wait, verdict.reason)

    def _on_own_error(
        self, exception: BaseException, number: int, own_retries: int, context: Context | None
    ) -> RetryDecision:
        """Return the decision on the job's own error, of which retries are left."""
        if self.otherwise is None:
            return RetryDecision.default()
        return self.otherwise.evaluate(exception, number, own_retries, context)

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
        stored: Any = self._store.get(_SPENT_KEY) if self._store else None
        same = isinstance(stored, dict) and stored.get("max_tries") == max_tries
        self.counts: dict[str, int] = dict(stored["counts"]) if same else {}

    def add(self, cause: str) -> None:
        self.counts[cause] = self.counts.get(cause, 0) + 1
        if self._store:
            self._store.set(_SPENT_KEY, {"max_tries": self._max_tries, "counts": self.counts})


def _is_queued(exception: BaseException, context: Context | None) -> bool:
    """Whether the next try is queued, so that no random delay is needed."""
    task = cast("Any", context or {}).get("task")
    return isinstance(exception, WriteConflictError) and getattr(task, "is_queued", False)


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
    task: Any = context["task"] if context else None
    own_retries = getattr(task, "own_retries", None)  # None: an operator of another provider
    return max_tries if own_retries is None else int(own_retries)


def composed(policy: RetryPolicy | None) -> HudiConflictRetryPolicy:
    """Return our policy, which leaves the job's own errors to another one."""
    if isinstance(policy, HudiConflictRetryPolicy):
        return policy
    return HudiConflictRetryPolicy(otherwise=policy)


def budgeted(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``retries`` with the budgets on top, and ``retry_policy``.

    :param arguments: of the task; without ``retries``, Airflow's ``default_task_retries`` are its own.
    """
    policy = composed(arguments.get("retry_policy"))
    own_retries = arguments.get("retries")
    if own_retries is None:
        own_retries = conf.getint("core", "default_task_retries", fallback=0)
    return {"retries": int(own_retries) + policy.retries, "retry_policy": policy}


class BudgetedRetries:
    """Add the budgets of the retry policy to an operator's own ``retries``.

    Airflow reads both from the serialized task, of a mapped task from the arguments of ``partial``. So
    they are computed where a task is made, whether it is mapped or not.
    """

    _retry_policy: HudiConflictRetryPolicy

    @classmethod
    def partial(cls, **arguments: Any) -> OperatorPartial:
        """Return the operator for ``expand``, with the budgets on top."""
        partial: OperatorPartial = super().partial(**arguments)  # type: ignore[misc]
        partial.kwargs.update(budgeted(partial.kwargs))
        return partial

    def budgeted(self, retries: int | None, retry_policy: RetryPolicy | None) -> dict[str, Any]:
        """Return ``retries`` and ``retry_policy`` for the constructor of ``BaseOperator``."""
        arguments = {"retries": retries, "retry_policy": retry_policy}
        # The arguments of `partial` have the budgets already.
        return arguments if getattr(self, "_BaseOperator__from_mapped", False) else budgeted(arguments)

    @property
    def own_retries(self) -> int:
        """The retries of the job's own errors."""
        retries: int | None = self.retries  # type: ignore[attr-defined]
        return max(0, (retries or 0) - self._retry_policy.retries)

    @property
    def retry_policy(self) -> HudiConflictRetryPolicy:
        """The policy; any other policy that was given is its ``otherwise``."""
        return self._retry_policy

    @retry_policy.setter
    def retry_policy(self, policy: RetryPolicy | None) -> None:
        before = self.__dict__.get("_retry_policy")  # a cluster policy assigns to a task that is made
        if before is None or isinstance(policy, HudiConflictRetryPolicy):
            self._retry_policy = composed(policy)
        else:
            self._retry_policy = before.with_otherwise(policy)
