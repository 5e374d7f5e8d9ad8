"""How long a storage may not answer before its drivers are given up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_occ_provider.errors import SubmitterUnreachableError, TableUnreadableError

_log = logging.getLogger(__name__)


@dataclass
class Patience:
    """Counts the time since a storage's last answer.

    :param limit_s: seconds after which it is over.
    :ivar failure: why there is no answer now; empty if there was one.
    """

    limit_s: float = 600.0
    failure: str = field(default="", init=False)
    _since_s: float = field(default=0.0, init=False)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Go on after a block that found no answer.

        :param what: is asked for, in a sentence.
        :raises SubmitterUnreachableError: if there was none for too long.
        """
        try:
            yield
        except TableUnreadableError as error:
            now_s = time.monotonic()
            if not self.failure:
                self._since_s = now_s
                minutes = self.limit_s / 60
                _log.warning(
                    "Asking for %s again, for up to %g minutes: %s", what, minutes, error.message
                )
            self.failure, silent_s = error.message, now_s - self._since_s
            if silent_s >= self.limit_s:
                raise SubmitterUnreachableError(
                    f"the storage has not answered for {silent_s / 60:.0f} minutes ({error.message}): "
                    f"whether {what} runs, and whether it commits, is unknown",
                    remedy="make the storage reachable again: the next try follows the driver",
                ) from error

    def end(self, what: str) -> None:
        """Note an answer.

        :param what: was asked for.
        """
        if self.failure:
            _log.info("For %s, the storage answers again.", what)
            self.failure = ""
