"""Lines that are wrong in one thing each: what the checker must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.nodes import Node, NodeGoneError, Nodes, NodeVersionError
from airflow_occ_provider.leases.observer import Observer
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Blocker, Mode, QueuedRequest, Request


class MixesModes(Queue):
    """A shared request does not wait for an exclusive one, nor the other way round."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        found = super()._blockers(ticket, request, names)
        return tuple(one for one in found if one.theirs.mode is one.ours.mode is Mode.EXCLUSIVE)


class SeesHoldersOnly(Queue):
    """Who waits is overtaken."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        found = super()._blockers(ticket, request, names)
        return found if any(self._holds(one.queued) for one in found) else ()

    def _holds(self, one: QueuedRequest) -> bool:
        elders = self._read(request_node.names_of_tables(one.request.tables, self._nodes.names()))
        return not any(
            elder.order < one.order and theirs.conflicts_with(ours)
            for elder in elders
            for theirs in elder.request.scopes
            for ours in one.request.scopes
        )


class ForgetsTasks(Queue):
    """A task that came in under an elder's lease is not seen."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        known = self._predecessors.get(ticket.name)
        found = super()._blockers(ticket, request, names)
        return found if known is None or known & {one.queued.name for one in found} else ()


class PassesByOwner(Queue):
    """Who came in beside a lease of its run passes it, as if it had come in under it."""

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        found = super()._blockers(ticket, request, names)
        return tuple(one for one in found if not request.owner.is_within(one.queued.request.owner))


class TrustsTheLastAnswer(Queue):
    """A renewal for a shorter term, whose answer was lost, leaves it the longer one to trust in."""

    def _put(self, ticket: Ticket, content: Content, version: int) -> Any:
        own = self._own.get(ticket.name)
        try:
            return super()._put(ticket, content, version)
        except LockUnreachableError:
            if own:
                self._own[ticket.name] = own
            raise


class TrustsForever(Queue):
    """It says held however long ago it showed that it lives."""

    def _is_trusted(self, own: Any) -> bool:
        return True


class KeepsEpoch(Queue):
    """An adoption leaves the epoch as it was."""

    def _adopt(self, ticket: Ticket, asked: Request | None = None) -> Ticket:
        while True:
            own = self._load(ticket, any_epoch=asked is not None)
            try:
                self._put(ticket, replace(own.content, mark=self._mark), own.version)
            except NodeVersionError:
                continue
            return replace(ticket, epoch=own.content.epoch)


class _Uninterrupted(Observer):
    """It counts all time as time in which an owner could have renewed."""

    def on_delay(self, seconds: float) -> None:
        pass

    def _see(self, name: str, node: Node) -> Any:
        before, seen = self._observations.get(name), super()._see(name, node)
        if before and seen.stood_s:
            seen = replace(seen, stood_s=before.stood_s + seen.seen_s - before.seen_s)
            self._observations[name] = seen
        return seen


class _Unversioned(_Uninterrupted):
    """Without an interruption: otherwise there is little that a version saves from."""

    def _remove(self, name: str, node: Node) -> bool:
        if not self._see(name, node).is_expired():
            return False
        with suppress(KeyError, NodeGoneError, NodeVersionError):
            self._nodes.delete(name, self._nodes.read([name])[name].version)
        return True


class _Hasty(Observer):
    def _remove(self, name: str, node: Node) -> bool:
        sighting = self._see(name, node)
        self._observations[name] = replace(sighting, stood_s=sighting.stood_s + sighting.term_s / 2)
        return super()._remove(name, node)


class _Blind(Observer):
    def remove_expired(self, elders: Iterable[QueuedRequest], ttl_ms: int) -> bool:
        return False


class _Observed(Queue):
    observer: type[Observer]

    def __init__(self, nodes: Nodes, clock: Callable[[], float]) -> None:
        super().__init__(nodes, clock)
        self._observer = self.observer(nodes, clock)


class DeletesUnversioned(_Observed):
    """A renewal between the look and the deletion does not save."""

    observer = _Unversioned


class DeletesEarly(_Observed):
    """Half a term is enough to be taken for dead."""

    observer = _Hasty


class NeverDeletes(_Observed):
    """The dead stay."""

    observer = _Blind


class ReleasesAnyEpoch(Queue):
    """A zombie takes the lease away from who adopted it."""

    def release(self, ticket: Ticket) -> bool:
        node = self._nodes.read([ticket.name]).get(ticket.name)
        if node is None:
            return False
        epoch = Content.decode(node.data, ticket.name).epoch
        return super().release(replace(ticket, epoch=epoch))


class LosesUnsynced(Queue):
    """A request is lost by the word of a server that may be behind."""

    def __init__(self, nodes: Nodes, clock: Callable[[], float]) -> None:
        super().__init__(nodes, clock)
        self._nodes.latest = self._nodes.read  # type: ignore[method-assign]


class KeepsSightings(_Observed):
    """An outage counts against owners that could not renew in it."""

    observer = _Uninterrupted


class EvictsTheOtherSite(Queue):
    """A request of another deployment, with the same DAG, run and task, is given up."""

    def _drop_superseded(self, line: list[QueuedRequest], asked: Request) -> list[QueuedRequest]:
        for one in line:
            if (one.request.owner.path, one.request.owner.label) == (
                asked.owner.path,
                asked.owner.label,
            ):
                self.evict(one)
        return super()._drop_superseded(line, asked)


class OlderTryAdopts(Queue):
    """A try takes over whatever has its id, also where a younger one has it."""

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
