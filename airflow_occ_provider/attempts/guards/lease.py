"""The guard of the lease, where nothing else keeps other writers away."""

from __future__ import annotations

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.outcome import Outcome, Stop


class LeaseGuard:
    """Stop a driver whose lease is lost and whose conflicts Hudi's check would not find.

    The keeper of the lease ends such a driver itself as well: it waits for no log and no journal.

    :param admitted: the lease under which the driver runs.
    """

    def __init__(self, admitted: Admitted) -> None:
        self._admitted = admitted

    def on_line(self, line: str) -> Stop | None:
        """Return nothing: a lease is looked at by the clock."""

    def on_tick(self) -> Stop | None:
        """Return why the driver must end, if its lease is lost."""
        keeper = self._admitted.keeper
        if self._admitted.is_fenced or keeper is None or keeper.lost is None:
            return None
        return Stop(Outcome.KILLED, keeper.lost.message)
