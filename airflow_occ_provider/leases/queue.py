"""The queue over a store of nodes: one node per request."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.deletion_watches import DeletionWatches
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.nodes import NodeGoneError, Nodes, NodeTakenError, NodeVersionError
from airflow_occ_provider.leases.observer import TRUSTED, Observer
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Blocker, Owner, QueuedRequest, Request, blockers
from airflow_occ_provider.leases.run_leases import covering_lease, missed_run_lease, refuse_older
from airflow_occ_provider.leases.timed_nodes import TimedNodes


@dataclass(frozen=True, slots=True)
class _OwnNode:
    """An own node as last read or written, and the clock before the write."""

    content: Content
    version: int
    written_s: float = float("-inf")


class Queue:
    """A ``LeaseService`` over a store of nodes. Threads may share it.

    A request ends only with the deletion of its node, and is not held while a conflicting earlier node
    exists. Only what never changes is cached of other requests: owner, scopes and position.

    :param nodes: the store.
    :param clock: a monotonic clock, in seconds.
    """

    def __init__(self, nodes: Nodes, clock: Callable[[], float] = time.monotonic) -> None:
        self._nodes: Nodes = TimedNodes(nodes, clock, self._on_delay)
        self._clock = clock
        self._observer = Observer(self._nodes, clock)
        self._mark = uuid.uuid4().hex
        self._known: dict[str, QueuedRequest] = {}
        self._predecessors: dict[str, set[str]] = {}
        self._own: dict[str, _OwnNode] = {}
        self._watches = DeletionWatches(self._nodes)

    @property
    def expiry_rule(self) -> str:
        """How expired requests are removed, as a sentence for the log of a waiter."""
        return "A request that is not renewed within its TTL is removed by the next waiter."

    def request(self, asked: Request) -> Ticket:
        """Queue a request; if one with the same id is queued, adopt that one.

        A created request is checked again before it counts: two requests that are created at the same
        time do not see each other before both are queued.
        """
        created = ""
        while True:
            queue = self._read(request_node.related_names(asked, self._nodes.names()))
            refuse_older(asked, queue)
            same = sorted(
                (one for one in queue if one.request.id == asked.id), key=lambda one: one.order
            )
            with suppress(LeaseLostError, NodeGoneError, NodeTakenError):
                if not same:
                    created = self._create(asked, self._drop_superseded(queue, asked))
                elif missed_run_lease(first := same[0], queue):
                    self._withdraw(first, asked)
                else:
                    for duplicate in same[1:]:
                        self._withdraw(duplicate, asked)
                    ticket = Ticket(asked.id, first.name, first.token, 1)
                    return ticket if first.name == created else self._adopt(ticket, asked)

    def status(self, ticket: Ticket, wake: Callable[[], None] | None = None) -> Status:
        """Return the request's status, after removing expired requests before it."""
        while True:
            own = self._trusted(ticket)
            names = self._names()
            if ticket.name not in names:
                raise self._lost(ticket, "it was removed")
            try:
                found = self._blockers(ticket, own.content.request, names)
            except NodeGoneError:
                continue  # a request whose covering lease is gone is missing from the names
            if not found and self._is_trusted(own):
                return Status()
            if self._observer.remove_expired((one.queued for one in found), own.content.request.ttl_ms):
                continue
            if not found:
                continue
            # The latest predecessor usually ends last: one watch, and one wake-up per grant.
            last = found[-1].queued
            # A foreign node may refuse a watch; it is polled anyway.
            is_foreign = request_node.parse(last.name) is None
            if wake is None or is_foreign or self._watches.set(ticket.name, last.name, wake):
                return Status(found)

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:
        """Renew the request."""
        self._write(ticket, lambda content: replace(content, term_ms=ttl_ms or content.request.ttl_ms))

    def sweep(self, ticket: Ticket) -> None:
        """Remove the request's direct predecessor if it has expired."""
        mine = self._queued(ticket, self._mine(ticket).content.request)
        concerned = self._read(request_node.names_of_tables(mine.request.tables, self._names()))
        earlier = [one for one in concerned if one.order < mine.order and not one.unknown]
        if earlier:
            last = max(earlier, key=lambda one: one.order)
            self._observer.remove_expired([last], mine.request.ttl_ms)

    def ensure_held(self, ticket: Ticket) -> None:
        """Return if the store confirms that the lease is held."""
        self.renew(ticket)
        found = self.status(ticket).blockers
        if found:
            raise self._lost(ticket, f"it is blocked by {found[0].queued.request.owner}")

    def adopt(self, ticket: Ticket) -> Ticket:
        """Take the request over from another process and invalidate that one's ticket."""
        return self._adopt(ticket)

    def release(self, ticket: Ticket) -> bool:
        """Remove the request; return whether it was still there and the ticket's."""
        with suppress(LeaseLostError, NodeGoneError):
            while True:
                own = self._mine(ticket)
                with suppress(NodeVersionError):
                    self._nodes.delete(ticket.name, own.version)
                    self._forget(ticket.name)
                    return True
                self._own.pop(ticket.name, None)
        self._forget(ticket.name)
        return False

    def evict(self, queued: QueuedRequest) -> bool:
        """Remove any owner's request by force; return whether it was there.

        Its owner notices at its next renewal, and may be writing until then.
        """
        return self._remove(queued, lambda _: None)

    def requests(self, table: str | None = None) -> tuple[QueuedRequest, ...]:
        """Return all requests, earliest first."""
        names = self._names()
        queue = self._read(request_node.names_of_tables([table], names) if table else names)
        return tuple(sorted(queue, key=lambda one: one.order))

    def requests_of_run(self, owner: Owner) -> tuple[QueuedRequest, ...]:
        """Return the requests of an owner's run, earliest first."""
        found = self._read(request_node.names_of_run(owner, self._names()))
        own = (one for one in found if one.request.owner.is_of_run(owner))
        return tuple(sorted(own, key=lambda one: one.order))

    def live_requests(self, table: str) -> tuple[QueuedRequest, ...]:
        """Return a table's requests, after removing expired ones."""
        found = self.requests(table)
        shortest_ms = min((one.request.ttl_ms for one in found), default=0)
        return self.requests(table) if self._observer.remove_expired(found, shortest_ms) else found

    def close(self) -> None:
        """Close the connection; requests stay until they expire."""
        self._nodes.close()

    def _create(self, asked: Request, others: Iterable[QueuedRequest]) -> str:
        lease = covering_lease(asked, others)
        name = request_node.name_of(asked, uuid.uuid4().hex[:8], lease.order if lease else ())
        content = Content(asked, 1, asked.ttl_ms, self._mark)
        written_s = self._clock()
        node = self._nodes.create(name, content.encode(), lease.name if lease else None)
        self._own[name] = _OwnNode(content, node.version, written_s)
        self._known[name] = request_node.queued(name, node)
        return name

    def _drop_superseded(self, queue: list[QueuedRequest], asked: Request) -> list[QueuedRequest]:
        """Withdraw superseded requests and return those of other owners."""
        for one in queue:
            if one.request.id in asked.supersedes:
                self._withdraw(one, asked)
        return [one for one in queue if one.request.owner != asked.owner]

    def _withdraw(self, queued: QueuedRequest, asked: Request) -> None:
        """Remove a request of the same owner, unless a later try adopted it."""
        self._remove(
            queued,
            lambda data: refuse_older(
                asked, [replace(queued, request=Content.decode(data, queued.name).request)]
            ),
        )

    def _remove(self, queued: QueuedRequest, allow: Callable[[bytes], None]) -> bool:
        """Remove a request in its current version; return whether it was there.

        :param allow: called with the content; raises to keep the node.
        """
        while node := self._nodes.latest([queued.name]).get(queued.name):
            if node.token != queued.token and not queued.unknown:
                break
            allow(node.data)
            with suppress(NodeVersionError, NodeGoneError):
                self._nodes.delete(queued.name, node.version)
                return True
        return False

    def _adopt(self, ticket: Ticket, asked: Request | None = None) -> Ticket:
        """Adopt a request.

        :param ticket: of the request.
        :param asked: the owner's repeated request, valid for any epoch; ``None`` if the ticket's epoch
            must be current.
        """
        own = self._load(ticket, any_epoch=True)
        while True:
            held, epoch = own.content.request, own.content.epoch
            if asked:
                refuse_older(asked, [self._queued(ticket, held)])
                held = replace(held, incarnation=asked.incarnation)
            is_next = held == own.content.request if asked else epoch == ticket.epoch + 1
            if own.content.mark == self._mark and is_next:
                return replace(ticket, epoch=epoch)  # an own write whose answer was lost
            if epoch != ticket.epoch and not asked:
                raise self._lost(ticket, "another process adopted it")
            taken = replace(
                own.content, request=held, epoch=epoch + 1, term_ms=held.ttl_ms, mark=self._mark
            )
            with suppress(NodeVersionError):
                self._put(ticket, taken, own.version)
                return replace(ticket, epoch=epoch + 1)
            own = self._load(ticket, any_epoch=True)

    def _write(self, ticket: Ticket, change: Callable[[Content], Content]) -> _OwnNode:
        while True:
            own = self._mine(ticket)
            with suppress(NodeVersionError):
                return self._put(ticket, change(own.content), own.version)
            self._own.pop(ticket.name, None)

    def _put(self, ticket: Ticket, content: Content, version: int) -> _OwnNode:
        written_s = self._clock()
        self._own.pop(ticket.name, None)  # without an answer the current term is unknown
        try:
            version = self._nodes.write(ticket.name, content.encode(), version)
        except NodeGoneError:
            raise self._lost(ticket, "it was removed") from None
        self._own[ticket.name] = own = _OwnNode(content, version, written_s)
        return own

    def _mine(self, ticket: Ticket) -> _OwnNode:
        own = self._own.get(ticket.name)
        return own if own and own.content.epoch == ticket.epoch else self._load(ticket)

    def _load(self, ticket: Ticket, *, any_epoch: bool = False) -> _OwnNode:
        # Not by a read that may be stale: the caller may act on a lost lease at once.
        node = self._nodes.latest([ticket.name]).get(ticket.name)
        if node is None or node.token != ticket.token:
            raise self._lost(ticket, "it was removed")
        content = Content.decode(node.data, ticket.name)
        if content.epoch != ticket.epoch and not any_epoch:
            raise self._lost(ticket, "another process adopted it")
        return _OwnNode(content, node.version)

    def _trusted(self, ticket: Ticket) -> _OwnNode:
        """Return the own node, renewed if it may be close to its expiry."""
        own = self._own.get(ticket.name)
        if own and own.content.epoch == ticket.epoch and self._is_trusted(own):
            return own
        return self._write(ticket, lambda content: content)

    def _is_trusted(self, own: _OwnNode) -> bool:
        return self._clock() - own.written_s < own.content.term_ms / 1000 * TRUSTED

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        mine = self._queued(ticket, request)
        predecessors = self._predecessors.get(ticket.name)
        if predecessors is None:
            concerned = self._read_all(request_node.names_of_tables(request.tables, names))
            predecessors = {one.name for one in concerned if one.order < mine.order}
        else:
            # Other requests cannot get in front of this one any more.
            late = [name for name in names - predecessors if _may_precede(name, mine)]
            predecessors = (predecessors & names).union(late)
        self._predecessors[ticket.name] = predecessors
        return blockers(mine, self._read_all(predecessors))

    def _queued(self, ticket: Ticket, request: Request) -> QueuedRequest:
        return QueuedRequest(request, ticket.name, request_node.order(ticket.name, ticket.token))

    def _read_all(self, names: Collection[str]) -> list[QueuedRequest]:
        """Return the requests of some nodes.

        :raises NodeGoneError: if one is gone.
        """
        found = self._read(names)
        if len(found) < len(names):
            raise NodeGoneError("one of the names")
        return found

    def _read(self, names: Iterable[str]) -> list[QueuedRequest]:
        """Return the requests of some nodes; nodes that are cached are not read again."""
        wanted = set(names)
        found = {name: known for name in wanted if (known := self._known.get(name))}
        unread = {name for name in wanted - found.keys() if request_node.parse(name)}
        nodes = self._nodes.read(unread) if unread else {}
        if missing := unread - nodes.keys():  # gone since, or not yet known to a lagging server
            nodes |= self._nodes.latest(missing)
        for name in nodes.keys() | (wanted - found.keys() - unread):
            self._known[name] = found[name] = request_node.queued(name, nodes.get(name))
        self._observer.observe(nodes)
        return list(found.values())

    def _on_delay(self, seconds: float) -> None:
        self._observer.on_delay(seconds)

    def _names(self) -> frozenset[str]:
        names = self._nodes.names()
        for name in list(self._known.keys() - names):
            self._known.pop(name, None)
        for name in list(self._predecessors.keys() - names):
            self._forget(name)
        self._observer.retain(names)
        return names

    def _forget(self, name: str) -> None:
        self._own.pop(name, None)
        self._predecessors.pop(name, None)
        self._watches.forget(name)

    def _lost(self, ticket: Ticket, why: str) -> LeaseLostError:
        self._forget(ticket.name)
        return LeaseLostError(
            f"the lease of request {ticket.id} is lost: {why}",
            remedy="no action if the task is retried; if it happens again, check whether its processes "
            "pause for longer than the lease's TTL",
        )


def _may_precede(name: str, mine: QueuedRequest) -> bool:
    """Return whether a request queued after another one may be positioned before it."""
    known = request_node.parse(name)
    return known is None or () < known.under < mine.order
