"""Queues with one fault each in how a lease passes between processes: the cases must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.queue import OwnNodes, Queue
from airflow_occ_provider.leases.request_node import Content
from tests.model import mutants


class NeverWakes(Queue):
    """A waiter sees that it is granted only at its next regular poll."""

    def status(self, ticket: Ticket, wake: Callable[[], None] | None = None, **options: Any) -> Status:
        return super().status(ticket, wake and (lambda: None), **options)


class _ShortensTheClaim(OwnNodes):
    def _put(self, ticket: Ticket, content: Content, version: Any) -> Any:
        own = self._load(ticket, any_epoch=True)
        if content.epoch > own.content.epoch:
            content = replace(content, term_ms=content.request.ttl_ms)
        return super()._put(ticket, content, version)


class ShortensTheClaim(mutants._Owns):
    """An adoption ends the longer term of the process before, on which a driver may live."""

    own_nodes = _ShortensTheClaim


class IgnoresTerms(Queue):
    """A claim is no longer than the time to live: the next process comes too late."""

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:
        super().renew(ticket)


class TakesAnyTicket(Queue):
    """A process takes back a lease that another one has adopted."""

    def adopt(self, ticket: Ticket) -> Ticket:
        return self._own_nodes.adopt(
            ticket, self._own_nodes._load(ticket, any_epoch=True).content.request
        )


MUTANTS: tuple[type[Queue], ...] = (
    NeverWakes,
    ShortensTheClaim,
    IgnoresTerms,
    TakesAnyTicket,
    mutants.TrustsForever,
    mutants.KeepsEpoch,
    mutants.DeletesEarly,
    mutants.NeverDeletes,
    mutants.ReleasesAnyEpoch,
)
