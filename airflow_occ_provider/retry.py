"""Decides whether a failed attempt is retried, and when.

A conflict is not a bug in the job: another writer committed first. So each cause that may pass with
time has its own budget, separate from the user's ``retries``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from airflow_occ_provider.errors import JobError, OccError

DEFAULT_BUDGETS: Mapping[str, int] = MappingProxyType(
    {
        "conflict": 5,
        "lock": 3,
        "heartbeat": 2,
        "hudi": 2,
        "killed": 2,
        "timeout": 2,
        "storage": 2,
        "airflow": 3,
        "worker": 2,
    }
)
"""Retries per cause. ``worker`` counts workers that died with their drivers: no policy sees these."""


@dataclass(frozen=True, slots=True)
class RetryVerdict:
    """The decision on a failed try.

    :param retry: retry it (``True``), fail it for good (``False``), or apply Airflow's own rules
        (``None``).
    :param reason: the reason, for the log.
    :param delay: the wait before the retry.
    :param cause: the budget that this try counts against, if any.
    """

    retry: bool | None
    reason: str
    delay: timedelta | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class ConflictRetry:
    """The rules for retries: budgets per cause, and waits with full jitter.

    :param budgets: retries allowed per cause, see ``DEFAULT_BUDGETS``.
    :param base_delay: upper bound of the first wait; it doubles with each retry of the same cause.
    :param max_delay: upper bound of every wait.
    """

    budgets: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_BUDGETS))
    base_delay: timedelta = timedelta(seconds=15)
    max_delay: timedelta = timedelta(minutes=5)

    def judge(
        self,
        error: BaseException,
        spent: Mapping[str, int],
        own_retries: int,
        jitter: float,
        *,
        infrastructure: bool = False,
    ) -> RetryVerdict:
        """Decide on one failed try.

        :param error: the error of the try.
        :param spent: retries already granted, per cause.
        :param own_retries: the task's ``retries``, for the job's own errors.
        :param jitter: a random number from 0 to 1.
        :param infrastructure: whether Airflow failed, not the job.
        """
        message = error.message if isinstance(error, OccError) else str(error)
        if infrastructure:
            return self._of_cause("airflow", message, spent, jitter)
        if isinstance(error, JobError) or not isinstance(error, OccError):
            return self._own_error(message, spent.get("job", 0), own_retries)
        if not error.retry:
            return RetryVerdict(False, f"[a retry does not help] {message}")
        return self._of_cause(error.cause, message, spent, jitter)

    def _of_cause(
        self, cause: str, message: str, spent: Mapping[str, int], jitter: float
    ) -> RetryVerdict:
        used, budget = spent.get(cause, 0), self.budgets.get(cause, 0)
        if used >= budget:
            return RetryVerdict(False, f"[{cause}, all {budget} retries are spent] {message}")
        reason = f"[{cause}, retry {used + 1} of {budget}] {message}"
        return RetryVerdict(True, reason, self._delay(used, jitter), cause)

    def _own_error(self, message: str, used: int, own_retries: int) -> RetryVerdict:
        if used >= own_retries:
            return RetryVerdict(
                False, f"[the job's own error, {own_retries} retries are spent] {message}"
            )
        return RetryVerdict(
            None, f"[the job's own error, retry {used + 1} of {own_retries}]", cause="job"
        )

    def _delay(self, used: int, jitter: float) -> timedelta:
        doubled = self.base_delay * float(2 ** min(used, 16))
        return min(self.max_delay, doubled) * jitter
