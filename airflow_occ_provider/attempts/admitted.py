"""Under which lease an attempt runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.rules import Scope


@dataclass(frozen=True, slots=True)
class Admitted:
    """Under what an attempt runs.

    :param scope: what it may write; ``None`` outside the line.
    :param order_token: of its lease; empty outside the line.
    :param is_fenced: whether Hudi's own check would find a conflict, so that the lease only saves
        time.
    :param keeper: renews the lease; ``None`` outside the line.
    """

    scope: Scope | None = None
    order_token: str = ""
    is_fenced: bool = True
    keeper: Keeper | None = None

    def refuse_if_lost(self) -> None:
        """Raise where the lease is all there is, and it was lost.

        :raises LeaseLostError: then.
        """
        if self.keeper and not self.is_fenced:
            self.keeper.refuse_if_lost()

    def outside(self, partitions: Sequence[str]) -> list[str]:
        """Return the partitions that the scope does not hold."""
        if self.scope is None or self.scope.partitions is None:
            return []
        held = self.scope
        return [path for path in partitions if not held.covers(Scope.of(held.table, [path]))]
