"""Queues with one fault each, which the checker must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.observer import Observer
from airflow_occ_provider.leases.queue import OwnNodes, Queue
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Blocker, Mode, QueuedRequest, Request
from airflow_occ_provider.leases.store import NodeGoneError, NodeVersionError, Store


class MixesModes(Queue):
    """A shared request does not wait for an exclusive one, nor the other way round."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        found = super()._blockers(ticket, request, names)
        return tuple(one for one in found if one.theirs.mode is one.ours.mode is Mode.EXCLUSIVE)


class SeesHoldersOnly(Queue):
    """A waiter is overtaken: only holders are seen."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        found = super()._blockers(ticket, request, names)
        return found if any(self._holds(one.queued) for one in found) else ()

    def _holds(self, one: QueuedRequest) -> bool:
        requests = self._reader.read(
            request_node.names_of_tables(one.request.tables, self._store.stamps())
        )
        return not any(
            earlier.order < one.order and theirs.conflicts_with(ours)
            for earlier in requests
            for theirs in earlier.request.scopes
            for ours in one.request.scopes
        )


class ForgetsTasks(Queue):
    """A task that passed under an earlier request's lease is not seen."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        known = self._predecessors.get(ticket.name)
        found = super()._blockers(ticket, request, names)
        return found if known is None or known & {one.queued.name for one in found} else ()


class PassesByOwner(Queue):
    """A request beside a lease of its run passes it, as if it were under that lease."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        found = super()._blockers(ticket, request, names)
        return tuple(one for one in found if not request.owner.is_within(one.queued.request.owner))


class _Owns(Queue):
    own_nodes: type[OwnNodes]

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(store, clock)
        self._own_nodes = self.own_nodes(self._store, clock, self._own_nodes._mark, self._forget)


class _TrustsTheLastAnswer(OwnNodes):
    def _put(self, ticket: Ticket, content: Content, version: Any) -> Any:
        own = self._nodes.get(ticket.name)
        try:
            return super()._put(ticket, content, version)
        except LockUnreachableError:
            if own:
                self._nodes[ticket.name] = own
            raise


class _TrustsForever(OwnNodes):
    def is_trusted(self, own: Any) -> bool:
        return True


class _KeepsEpoch(OwnNodes):
    def adopt(self, ticket: Ticket, asked: Request | None = None) -> Ticket:
        while True:
            own = self._load(ticket, any_epoch=asked is not None)
            try:
                self._put(ticket, replace(own.content, mark=self._mark), own.version)
            except NodeVersionError:
                continue
            return replace(ticket, epoch=own.content.epoch)


class TrustsTheLastAnswer(_Owns):
    """A renewal for a shorter term, whose answer was lost, leaves it the longer one to trust in."""

    own_nodes = _TrustsTheLastAnswer


class TrustsForever(_Owns):
    """It says held however long ago it showed that it lives."""

    own_nodes = _TrustsForever


class KeepsEpoch(_Owns):
    """An adoption leaves the epoch as it was."""

    own_nodes = _KeepsEpoch


class _Uninterrupted(Observer):
    """It counts all time, outages included, as time in which an owner could have renewed."""

    def on_delay(self, seconds: float) -> None:
        pass

    def _continued(self, before: Any) -> Any:
        seen = super()._continued(before)
        return replace(seen, unchanged_s=before.unchanged_s + seen.seen_s - before.seen_s)


class _Unversioned(_Uninterrupted):
    """It deletes without comparing versions; no interruption, so that this matters."""

    def _remove(self, name: str) -> bool:
        observation = self._observations.get(name)
        if observation is None or not observation.is_expired():
            return False
        with suppress(KeyError, NodeGoneError, NodeVersionError):
            self._store.delete(name, self._store.read([name])[name].version)
        return True


class _Hasty(Observer):
    def _remove(self, name: str) -> bool:
        if name not in self._observations:
            return False
        seen = self._observations[name]
        self._observations[name] = replace(seen, unchanged_s=seen.unchanged_s + seen.term_s / 2)
        return super()._remove(name)


class _Blind(Observer):
    def remove_expired(self, earlier: Iterable[QueuedRequest], ttl_ms: int) -> bool:
        return False


class _Observed(Queue):
    observer: type[Observer]

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(store, clock)
        self._observer = self._reader._observer = self.observer(store, clock)


class DeletesUnversioned(_Observed):
    """A renewal between the read and the deletion does not prevent the deletion."""

    observer = _Unversioned


class DeletesEarly(_Observed):
    """A request is removed as dead after half its term."""

    observer = _Hasty


class NeverDeletes(_Observed):
    """Dead requests are never removed."""

    observer = _Blind


class ReleasesAnyEpoch(Queue):
    """A process releases a lease that another one has adopted."""

    def release(self, ticket: Ticket) -> bool:
        node = self._store.read([ticket.name]).get(ticket.name)
        if node is None:
            return False
        epoch = Content.decode(node.data, ticket.name).epoch
        return super().release(replace(ticket, epoch=epoch))


class LosesUnsynced(Queue):
    """A request is considered lost on the answer of a server that may lag."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(store, clock)
        read = self._store.read
        self._store.read = lambda names, latest=False: read(names)  # type: ignore[method-assign]


class KeepsSightings(_Observed):
    """The time of an outage counts against owners, which could not renew in it."""

    observer = _Uninterrupted


class EvictsTheOtherSite(Queue):
    """A request of another deployment, with the same DAG, run and task, is withdrawn."""

    def _create(self, asked: Request, queue: list[QueuedRequest]) -> str:
        for one in queue:
            if (one.request.owner.path, one.request.owner.label) == (
                asked.owner.path,
                asked.owner.label,
            ):
                self.evict(one)
        return super()._create(asked, queue)


class OlderTryAdopts(Queue):
    """A try adopts a request with its id although a later try has adopted it."""

    def request(self, asked: Request) -> Ticket:
        return super().request(replace(asked, incarnation=1_000_000))


MUTANTS: tuple[type[Queue], ...] = (
    MixesModes,
    SeesHoldersOnly,
    ForgetsTasks,
    PassesByOwner,
    TrustsTheLastAnswer,
    TrustsForever,
    KeepsEpoch,
    DeletesUnversioned,
    DeletesEarly,
    NeverDeletes,
    ReleasesAnyEpoch,
    LosesUnsynced,
    KeepsSightings,
    EvictsTheOtherSite,
    OlderTryAdopts,
)
