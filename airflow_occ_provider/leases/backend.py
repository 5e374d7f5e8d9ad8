"""A lock connection's two plain values: what keeps leases, and Hudi's lock."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.lease import Terms

if TYPE_CHECKING:
    from airflow_occ_provider.leases.commit_lock import CommitLock
    from airflow_occ_provider.leases.queue import Queue


class HudiLock(Protocol):
    """Hudi's own lock, which a writer takes to commit.

    Each method raises ``ConfigurationError`` if a value is missing or wrong, and
    ``LockUnreachableError`` if it asks the lock service and gets no answer in time.
    """

    def options(self, table: str, /) -> dict[str, str]:
        """Return the options of Hudi's lock provider.

        :param table: base path of the table that is written.
        """

    def view(self, table: str, table_name: str, /) -> CommitLock | None:
        """Open a view of the lock of a table; ``None`` if no service keeps it.

        :param table: base path of the table.
        :param table_name: its ``hoodie.table.name``.
        """


class LeaseBackend(Protocol):
    """The service that keeps the leases of some tables.

    Each method raises ``ConfigurationError`` if a value is wrong or rejected, and
    ``LockUnreachableError`` if it asks the service and gets no answer in time: ``test`` within the
    time-out of an answer, for each of its steps.
    """

    def beside(self, lock: HudiLock, /) -> LeaseBackend:
        """Return leases that know Hudi's lock.

        It is this value itself, if neither can be in the other's way.

        :raises ConfigurationError: if the lock is where the leases are.
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


def require_module(module: str, service: str, remedy: str) -> None:
    """Refuse to go on without the client of a service.

    :param module: that is, or needs, the client.
    :param service: for the message.
    :param remedy: how it is installed.
    :raises ConfigurationError: if it is not installed.
    """
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            "type", f"the client of {service} is not installed ({error})", remedy=remedy
        ) from error
