"""Keeps a lease alive while this process works under it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Self

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases.lease import LeaseService, Ticket
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL, TRUSTED

_log = logging.getLogger(__name__)
_AGAIN_S = 1.0
_LOOKS_PER_TTL = 60
_END_TIMEOUT_S = 2.0


def least_ttl_s(end_s: float) -> int:
    """Return the shortest time to live within which work is ended before others may hold its lease.

    A loss is concluded at ``TRUSTED`` of it, and seen at the next look; then the work is ended.

    :param end_s: seconds that ending the work may take.
    """
    return math.ceil(round(end_s / (1 - TRUSTED - 1 / _LOOKS_PER_TTL), 6))


class Consequence(NamedTuple):
    """What follows where others may hold the lease.

    :param told: in words, for the log.
    :param act: called in a thread, again and again.
    """

    told: str
    act: Callable[[], None] = lambda: None


class Keeper:
    """Renew a held lease in a thread, for as long as a ``with`` block runs.

    A second thread watches the first: a renewal that hangs does not hide that the term runs out.

    :param service: where the lease is held.
    :param ticket: of the lease.
    :param ttl_ms: milliseconds without a renewal after which others may take its owner for dead.
    :param on_lost: what follows once it is lost, or may be.
    :raises LeaseLostError: on entry, if it is lost already.
    :raises LockUnreachableError: on entry, if the lock service does not answer in time.
    """

    def __init__(
        self,
        service: LeaseService,
        ticket: Ticket,
        ttl_ms: int,
        on_lost: Consequence = Consequence("the work goes on"),  # noqa: B008 - it never changes
    ) -> None:
        self._service = service
        self._ticket = ticket
        self._ttl_s = ttl_ms / 1000
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True, name=f"lease-{run.__name__.strip('_')}")
            for run in (self._keep, self._watch)
        ]
        self._renewed_s = time.monotonic()
        self._failure = ""
        self.lost: LeaseLostError | None = None

    def __enter__(self) -> Self:
        self._renew()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(_END_TIMEOUT_S)

    def refuse_if_lost(self) -> None:
        """Raise what it was lost with, if it was.

        :raises LeaseLostError: if others may have been granted meanwhile.
        """
        if self.lost:
            raise self.lost

    def _renew(self) -> None:
        started_s = time.monotonic()
        self._service.renew(self._ticket, round(self._ttl_s * 1000))
        self._renewed_s, self._failure = started_s, ""

    def _keep(self) -> None:
        while not self._ended.wait(_AGAIN_S if self._failure else self._ttl_s / RENEWALS_PER_TTL):
            try:
                self._renew()
                self._sweep()
            except LeaseLostError as error:
                self._lose(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the next renewal is tried
                self._failure = f"{type(error).__name__}: {error}"
                _log.warning("The lease could not be renewed, trying again: %s", error)

    def _sweep(self) -> None:
        """Remove the dead; a failure does not make the renewal before it a failed one."""
        try:
            self._service.sweep(self._ticket)
        except LeaseLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the next renewal sweeps again
            _log.info("The dead were not looked for this time: %s", error)

    def _watch(self) -> None:
        while not self._ended.wait(self._ttl_s / _LOOKS_PER_TTL):
            if not self.lost and time.monotonic() - self._renewed_s >= self._ttl_s * TRUSTED:
                self._lose(
                    LeaseLostError(
                        f"the lease could not be renewed within {self._ttl_s:g} s, others may hold it "
                        f"now: {self._failure or 'the renewal hangs'}",
                        remedy="look whether this machine reaches the lock service all the time",
                    )
                )
            if self.lost:
                self._on_lost.act()

    def _lose(self, error: LeaseLostError) -> None:
        if self.lost is None:
            _log.warning("%s; %s.", error.message, self._on_lost.told)
            self.lost = error
