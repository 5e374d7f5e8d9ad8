"""How long a call waits for a storage, and how often a process asks again."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, field

from airflow_occ_provider.errors import LockUnreachableError

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 5.0
_CONTESTED_PAUSE_S = 1.0
_TRIES_PER_CALL = 4
_TOLD_AFTER = 4


@dataclass
class Patience:
    """The time of one call.

    :param timeout_s: seconds that the call may take.
    :param place: of the storage, for messages.
    """

    timeout_s: float
    place: str
    _pause_s: float = field(init=False, default=_FIRST_PAUSE_S)
    _deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline_s = time.monotonic() + self.timeout_s

    @property
    def left_s(self) -> float:
        """The seconds left, never less than a millisecond."""
        return max(self._deadline_s - time.monotonic(), 0.001)

    def pause(self, reason: object) -> None:
        """Wait after another client was faster, each time longer.

        :raises LockUnreachableError: if there is no time for another try.
        """
        self.wait_until(time.monotonic() + _random(self._pause_s), reason)
        self._pause_s = min(2 * self._pause_s, _CONTESTED_PAUSE_S)

    def wait_until(self, when_s: float, reason: object) -> None:
        """Wait until a time of the monotonic clock.

        :raises LockUnreachableError: if that is too late for this call.
        """
        if when_s >= self._deadline_s:
            raise self.unreachable(reason)
        time.sleep(max(0.0, when_s - time.monotonic()))

    def unreachable(self, reason: object) -> LockUnreachableError:
        """Return the error of a call that ends without an answer."""
        return LockUnreachableError(
            f"{self.place} did not answer in {self.timeout_s:g} s: {reason}",
            remedy="check the storage and the way to it",
        )


class Backoff:
    """The pauses of all threads together while a storage fails or refuses; told once.

    :param place: of the storage.
    :param timeout_s: seconds of a call, in which there are some tries.
    """

    def __init__(self, place: str, timeout_s: float) -> None:
        self._place = place
        self._longest_s = min(_LONGEST_PAUSE_S, timeout_s / _TRIES_PER_CALL)
        self._failures, self._began_s, self._pause_s = 0, 0.0, _FIRST_PAUSE_S
        self.resume_s = float("-inf")
        """The time of the monotonic clock before which no request is sent."""
        self.reason: Exception | None = None

    def failed(self, error: Exception) -> None:
        """Note a request without an answer."""
        now_s = time.monotonic()
        if not self._failures:
            self._began_s, self._pause_s = now_s, _FIRST_PAUSE_S
        self._failures, self.reason = self._failures + 1, error
        self.resume_s = now_s + _random(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        if self._failures == _TOLD_AFTER:
            _log.warning("%s does not answer; it is asked again: %s", self._place, error)

    def answered(self) -> None:
        """Note an answer."""
        if self._failures >= _TOLD_AFTER:
            away_s = time.monotonic() - self._began_s
            _log.warning("%s answers again after %.0f s.", self._place, away_s)
        self._failures, self.resume_s, self.reason = 0, float("-inf"), None


def _random(pause_s: float) -> float:
    return pause_s * random.uniform(0.5, 1)  # noqa: S311 - no secret
