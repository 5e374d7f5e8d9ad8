"""Keeps a lease alive while this process works under it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError, OccError
from airflow_occ_provider.leases.lease import LeaseService, Ticket
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL, TRUSTED

_log = logging.getLogger(__name__)
_AGAIN_S = 1.0
_END_TIMEOUT_S = 2.0


class Keeper:
    """Renew a held lease in a thread, for as long as a ``with`` block runs.

    :param service: where the lease is held.
    :param ticket: of the lease.
    :param ttl_ms: milliseconds without a renewal after which others may take its owner for dead.
    :param on_lost: called in the thread, again and again, once it is lost or may be.
    """

    def __init__(
        self,
        service: LeaseService,
        ticket: Ticket,
        ttl_ms: int,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._service = service
        self._ticket = ticket
        self._ttl_s = ttl_ms / 1000
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="lease-keeper")
        self._renewed_s = time.monotonic()
        self.lost: OccError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_END_TIMEOUT_S)

    def refuse_if_lost(self) -> None:
        """Raise what it was lost with, if it was.

        :raises LeaseLostError: if others may have been granted meanwhile.
        """
        if self.lost:
            raise self.lost

    def _keep(self) -> None:
        while not self._ended.wait(self._pause_s):
            started_s = time.monotonic()
            try:
                self._service.renew(self._ticket)
                self._renewed_s = started_s
                self._service.sweep(self._ticket)
            except LeaseLostError as error:
                self._lose(error)
                self._insist()
            except OccError as error:
                self._doubt(error)

    @property
    def _pause_s(self) -> float:
        return _AGAIN_S if self.lost else self._ttl_s / RENEWALS_PER_TTL

    def _doubt(self, error: OccError) -> None:
        if time.monotonic() - self._renewed_s >= self._ttl_s * TRUSTED:
            self._lose(
                LeaseLostError(
                    f"the lease could not be renewed for {self._ttl_s:g} s: {error.message}",
                    remedy=error.remedy,
                )
            )
            self._on_lost()
        elif isinstance(error, LockUnreachableError):
            _log.warning("The lease could not be renewed, trying again: %s", error.message)

    def _lose(self, error: LeaseLostError) -> None:
        if self.lost is None:
            _log.warning("%s", error.message)
        self.lost = error

    def _insist(self) -> None:
        self._on_lost()
        while not self._ended.wait(_AGAIN_S):
            self._on_lost()
