"""``LeaseBackend``: the service that keeps leases, by plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow_occ_provider.leases.lease import Terms

if TYPE_CHECKING:
    from airflow_occ_provider.leases.queue import Queue


class LeaseBackend(Protocol):
    """The service that keeps the leases of some tables.

    Each method raises ``ConfigurationError`` if a value is wrong or rejected, and
    ``LockUnreachableError`` if it asks the service and gets no answer in time: ``test`` within the
    time-out of an answer, for each of its steps.
    """

    def terms(self) -> Terms:
        """Return the TTLs of the leases."""

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""

    def validate(self) -> None:
        """Check the values, without a request; each try of a task does so."""

    def test(self) -> str:
        """Check that the service answers and grants; return a summary.

        It is for people: it may make as many requests as it needs.
        """
