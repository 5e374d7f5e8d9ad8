"""The keeper: renews a lease while this process works under it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL, TRUSTED
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner

_log = logging.getLogger(__name__)
_RETRY_S = 1.0
_CHECKS_PER_TTL = 60
_END_TIMEOUT_S = 2.0


def least_ttl_s(end_s: float) -> int:
    """Return the shortest TTL in seconds that leaves time to stop the work.

    A loss is assumed after ``TRUSTED`` of the TTL and noticed at the next check; then the work is
    stopped, before the lease can be granted to another owner.

    :param end_s: seconds that stopping the work may take.
    """
    return math.ceil(round(end_s / (1 - TRUSTED - 1 / _CHECKS_PER_TTL), 6))


class Keeper:
    """A context manager that renews a held lease in a thread.

    A second thread watches the first: a renewal that hangs does not hide the end of the term.

    :param service: where the lease is held.
    :param ticket: of the lease.
    :param ttl_ms: milliseconds without a renewal after which the lease expires.
    :param on_lost: what happens once the lease is lost, or may be, for the log.
    :param usual_ttl_ms: the TTL by which it is renewed and checked as often; by default ``ttl_ms``.
    :raises LeaseLostError: on entry, if the lease is lost already.
    :raises LockUnreachableError: on entry, if the lock service does not answer in time.
    """

    def __init__(
        self,
        service: Queue,
        ticket: Ticket,
        ttl_ms: int,
        *,
        on_lost: str = "the work continues",
        usual_ttl_ms: int | None = None,
    ) -> None:
        self._service = service
        self._ticket = ticket
        self._ttl_s = ttl_ms / 1000
        self._usual_s = (usual_ttl_ms or ttl_ms) / 1000
        self._on_lost = on_lost
        self._ended, self._wake = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True, name=f"lease-{run.__name__.strip('_')}")
            for run in (self._keep, self._watch)
        ]
        self._renewed_s, self._extended_s = time.monotonic(), float("-inf")
        self._failure, self._is_left = "", False
        self.lost: LeaseLostError | None = None

    def __enter__(self) -> Self:
        self._renew()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Renew the lease no more; what happens to it afterwards is no loss."""
        self._ended.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(_END_TIMEOUT_S)
        self._is_left = True

    @property
    def is_stopped(self) -> bool:
        """Whether the lease is renewed no more."""
        return self._ended.is_set()

    @property
    def extended_s(self) -> float:
        """The monotonic time at which the last renewal began that succeeded."""
        return self._extended_s

    def extend_soon(self) -> None:
        """Renew the lease without waiting for the next regular time; returns at once."""
        if not self._failure:  # else it is retried soon
            self._wake.set()

    def refuse_if_lost(self) -> None:
        """Raise the error that ended the lease, if it is lost.

        :raises LeaseLostError: if the lease may have been granted to another owner.
        """
        if self.lost:
            raise self.lost

    def announce(self, instants: Sequence[str]) -> None:
        """Record in the request which writes its owner has begun.

        :param instants: their requested times.
        :raises LeaseLostError: if the lease is lost.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        if not self.is_stopped:
            self._service.announce(self._ticket, instants)

    def announced(self, table: str) -> Mapping[str, Owner]:
        """Return the owners of the writes that a table's other requests have announced.

        :return: none once it is stopped.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        return {} if self.is_stopped else self._service.announced(self._ticket, table)

    def _renew(self) -> None:
        started_s = time.monotonic()
        self._service.renew(self._ticket, round(self._ttl_s * 1000))
        if self._failure:
            _log.info("The lease is renewed again after %.0f s.", started_s - self._renewed_s)
        self._renewed_s, self._failure = started_s, ""
        self._extended_s = started_s

    def _keep(self) -> None:
        while not self._ends_within(_RETRY_S if self._failure else self._usual_s / RENEWALS_PER_TTL):
            try:
                self._renew()
                self._sweep()
            except LeaseLostError as error:
                self._lose(error)
                return
            except Exception as error:  # noqa: BLE001 - the renewal is retried
                if not self._failure:  # an outage is logged once
                    _log.warning("The lease could not be renewed, retrying: %s", error)
                self._failure = f"{type(error).__name__}: {error}"

    def _ends_within(self, wait_s: float) -> bool:
        """Wait until the next renewal is due, or wanted; return whether there is none any more."""
        self._wake.wait(wait_s)
        self._wake.clear()
        return self._ended.is_set()

    def _sweep(self) -> None:
        """Remove expired requests; a failure does not count as a failed renewal."""
        try:
            self._service.sweep(self._ticket)
        except LeaseLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the next renewal sweeps again
            _log.info("Expired requests were not checked this time: %s", error)

    def _watch(self) -> None:
        while not self._ended.wait(self._usual_s / _CHECKS_PER_TTL):
            if not self.lost and time.monotonic() - self._renewed_s >= self._ttl_s * TRUSTED:
                self._lose(
                    LeaseLostError(
                        f"the lease could not be renewed within {self._ttl_s:g} s and may have been "
                        f"granted to another owner: {self._failure or 'the renewal hangs'}",
                        remedy="check whether this machine always reaches the lock service",
                    )
                )

    def _lose(self, error: LeaseLostError) -> None:
        if self.lost is None and not self._is_left:  # it may have been released since
            _log.warning("%s; %s.", error.message, self._on_lost)
            self.lost = error
