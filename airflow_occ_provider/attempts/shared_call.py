"""A call whose answer is shared by all that ask within a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class SharedCall(Generic[_T]):
    """Makes a call at most once in a period, however many threads want its answer.

    A failure is an answer, too: a service that does not answer is not asked by each of its users.

    :param call: the call.
    :param period_s: seconds for which an answer is shared, from the beginning of its call.
    """

    def __init__(self, call: Callable[[], _T], period_s: float) -> None:
        self._call = call
        self._period_s = period_s
        self._lock = threading.Lock()
        self._asked_s = float("-inf")
        self._answer: _T | None = None
        self._error: Exception | None = None

    def get(self) -> _T:
        """Return the answer, or raise what the call raised."""
        with self._lock:
            if time.monotonic() - self._asked_s >= self._period_s:
                self._ask()
            answer = self._answer
            error = self._error
        if error:
            raise error.with_traceback(None)
        return answer  # type: ignore[return-value]

    def _ask(self) -> None:
        begun_s = time.monotonic()
        self._answer = None
        self._error = None
        try:
            self._answer = self._call()
        except Exception as error:  # noqa: BLE001 - raised in all that ask
            self._error = error
            begun_s = time.monotonic()  # it may have taken longer than the period
        self._asked_s = begun_s
