"""The bounded retry: an operation that may fail is repeated, up to a limit.

What waits for a fact, such as the end of a driver, or goes on for as long as a task lives, is no retry.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

_T = TypeVar("_T")


def bounded(
    operation: Callable[[], _T],
    errors: type[Exception] | tuple[type[Exception], ...],
    *,
    tries: float = math.inf,
    within_s: float = math.inf,
    pause_s: float = 0.0,
    before_next: Callable[[BaseException | None], object] | None = None,
) -> _T:
    """Return the answer of an operation, which is repeated after some errors.

    The error of the last try is raised as it is, and any other error at once. A try is never
    interrupted: an operation that may hang needs a time-out of its own.

    :param errors: those after which it is repeated.
    :param tries: the most tries.
    :param within_s: seconds after which a failed try is the last one.
    :param pause_s: seconds between two tries.
    :param before_next: called with the error before each pause, such as to forget what was read.
    :raises ValueError: without a limit.
    """
    if math.isinf(tries) and math.isinf(within_s):
        raise ValueError("a retry needs a limit: tries, or within_s")
    until_s = time.monotonic() + within_s

    def is_last(state: tenacity.RetryCallState) -> bool:
        return state.attempt_number >= tries or time.monotonic() >= until_s

    def prepare(state: tenacity.RetryCallState) -> None:
        if before_next and state.outcome:
            before_next(state.outcome.exception())

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(errors),
        stop=is_last,
        wait=tenacity.wait_fixed(pause_s),
        before_sleep=prepare,
        sleep=time.sleep,
        reraise=True,
    )
    return retrying(operation)
