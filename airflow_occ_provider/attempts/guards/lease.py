"""The guard of a lease if nothing else keeps other writers away."""

from __future__ import annotations

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.outcome import Outcome, Stop


class LeaseGuard:
    """Stop a driver that lost its lease and whose conflicts Hudi does not find.

    The keeper of the lease also ends such a driver itself: it waits for no log and no journal.

    :param admitted: the lease under which the driver runs.
    """

    def __init__(self, admitted: Admitted) -> None:
        self._admitted = admitted

    def on_line(self, line: str) -> Stop | None:
        """Return nothing: the lease is checked at each tick."""

    def on_tick(self) -> Stop | None:
        """Return the reason to stop the driver, if its lease is lost."""
        keeper = self._admitted.keeper
        if self._admitted.is_fenced or keeper is None or keeper.lost is None:
            return None
        return Stop(Outcome.KILLED, keeper.lost.message)
