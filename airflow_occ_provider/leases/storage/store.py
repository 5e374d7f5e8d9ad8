"""The queue's store in one object of an object store, or one file."""

from __future__ import annotations

from airflow_occ_provider.leases.ledger_store import LedgerStore, fresh_s
from airflow_occ_provider.leases.storage.shared_ledger import SharedLedger
from airflow_occ_provider.leases.storage.shared_object import SharedObject


class StorageStore(LedgerStore):
    """The ``Store`` in a shared object. Threads may share it.

    :param shared: the object.
    :param poll_s: the most seconds between two looks for deletions, while one is waited for.
    :param timeout_s: for each call.
    :param gather_s: seconds between two writes of replacements, after some without a pause.
    """

    def __init__(
        self,
        shared: SharedObject,
        poll_s: float = 1.0,
        timeout_s: float = 10.0,
        gather_s: float = 0.0,
    ) -> None:
        ledger = SharedLedger(shared, timeout_s, gather_s=gather_s, fresh_s=fresh_s(poll_s))
        super().__init__(ledger, poll_s)
