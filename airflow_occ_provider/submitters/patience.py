"""How long a service may not answer before its driver is given up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_occ_provider.errors import OccError, SubmitterUnreachableError

_log = logging.getLogger(__name__)


@dataclass
class Patience:
    """Counts the time since a service's last answer.

    :param limit_s: seconds after which it is over.
    :param service: what is asked, as it is called in a sentence.
    """

    limit_s: float = 1800.0
    service: str = "the cluster"
    _since: float | None = field(default=None, init=False)

    @property
    def is_over(self) -> bool:
        """Whether the service has not answered for too long."""
        return self._silent_s >= self.limit_s

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Go on after a block that found no answer, unless patience is over."""
        try:
            yield
        except SubmitterUnreachableError:
            if self.is_over:
                raise

    def count(self, driver: str, error: SubmitterUnreachableError, address: str = "") -> None:
        """Count a call without an answer.

        :param driver: that was asked for.
        :param address: of the service, if it has one.
        :raises SubmitterUnreachableError: if there was none for too long.
        """
        if self._since is None:
            self._since = time.monotonic()
            minutes = self.limit_s / 60
            _log.warning("Asking for %s again, for up to %g minutes: %s", driver, minutes, error.message)
        if self.is_over:
            asked = f"{self.service} at {address}" if address else self.service
            raise SubmitterUnreachableError(
                f"{asked} has not answered for {self._silent_s / 60:.0f} minutes "
                f"({error.message}): whether {driver} runs, and whether it commits, is unknown",
                remedy=f"make {self.service} reachable again: the next try follows the driver",
            ) from error

    def count_storage(self, what: str, error: OccError) -> SubmitterUnreachableError:
        """Count a request to a storage without an answer, and return the error for it.

        :param what: was asked for.
        :raises SubmitterUnreachableError: if there was none for too long.
        """
        unreachable = SubmitterUnreachableError(error.message, remedy=error.remedy)
        self.count(what, unreachable)
        return unreachable

    def reset(self, driver: str) -> None:
        """Note an answer."""
        if self._since is not None:
            _log.info("For %s, %s answers again.", driver, self.service)
            self._since = None

    @property
    def _silent_s(self) -> float:
        since = self._since  # another thread may reset it
        return 0.0 if since is None else time.monotonic() - since
