"""Logs of changes with one fault each, which the witness must find."""

from __future__ import annotations

from airflow_occ_provider.leases.ledger import Change, Ledger
from airflow_occ_provider.leases.metastore.lock_log import LockLog, _Log


class ForgetsOthersChanges(LockLog):
    """A change is made to what this process saw last, whatever came between."""

    def change(self, change: Change, *, is_urgent: bool = True) -> Ledger:
        before = self._ledger
        super().change(change, is_urgent=is_urgent)
        return change.apply(before)


class AddsWhatItSawLast(LockLog):
    """The ledger that it adds misses the changes before its own."""

    def _refresh(self, log: _Log, lock_id: int, after: Ledger) -> None:
        super()._refresh(log, lock_id, self._last)
        self._last = after

    _last = Ledger(0)


class ReleasesTooMuch(LockLog):
    """The changes that the last ledger does not include are released too."""

    def _refresh(self, log: _Log, lock_id: int, after: Ledger) -> None:
        super()._refresh(log, lock_id, after)
        for number in list(log.changes):
            self._locks.unlock(number)


MUTANTS = [ForgetsOthersChanges, AddsWhatItSawLast, ReleasesTooMuch]
