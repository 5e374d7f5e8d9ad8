"""The lease under which an attempt runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.rules import Mode, Owner, Scope


@dataclass(frozen=True, slots=True)
class Admitted:
    """The lease under which an attempt runs, if there is one.

    As a guard it stops a driver that lost its lease and whose conflicts Hudi does not find. Stopped or
    not, such a driver begins no commit once its lease may be over.

    :param is_fenced: whether Hudi's own check would find a conflict, so that the lease only saves
        time.
    :param loss: the error that ended the lease before this process took it over.
    :param lease_ttl_s: for how long each extension of the lease lasts; ``None`` if Hudi's check finds
        conflicts.
    """

    scope: Scope | None = None
    order_token: str = ""
    is_fenced: bool = True
    keeper: Keeper | None = None
    loss: LeaseLostError | None = None
    lease_ttl_s: float | None = None

    @property
    def lost(self) -> LeaseLostError | None:
        """The error that ended the lease, if it is lost."""
        return self.loss or (self.keeper.lost if self.keeper else None)

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if its lease is lost."""
        lost = self.lost
        return None if self.is_fenced or lost is None else Stop(Outcome.KILLED, lost.message)

    @property
    def is_shared(self) -> bool:
        """Whether it admits the attempt beside other writers."""
        return self.scope is not None and self.scope.mode is Mode.SHARED

    def refuse_if_lost(self) -> None:
        """Raise if the lease was lost and nothing else keeps other writers away.

        :raises LeaseLostError: then.
        """
        if self.lost and not self.is_fenced:
            raise self.lost

    def extend(self, driver: Driver) -> None:
        """Have a driver live for as long as the lease is extended, if it depends on that."""
        if self.keeper:
            driver.submitter.feed(self.keeper)

    def announce(self, instant: str) -> None:
        """Tell the table's other tasks which write runs under the lease.

        :raises OccError: if the lease is lost, or its service does not answer.
        """
        if self.keeper:
            self.keeper.announce((instant,))

    def announced(self) -> Mapping[str, Owner]:
        """Return the owners of the writes that other tasks announced under their leases.

        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        return self.keeper.announced(self.scope.table) if self.keeper and self.scope else {}

    def outside(self, partitions: Sequence[str]) -> list[str]:
        """Return the partitions that the scope does not cover."""
        if self.scope is None or self.scope.partitions is None:
            return []
        held = self.scope
        return [path for path in partitions if not held.covers(Scope.of(held.table, [path]))]
