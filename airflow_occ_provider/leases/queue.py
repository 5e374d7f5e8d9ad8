"""The queue over a store: one node per request, and those of this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL, TRUSTED, Observer, Reader, TimedStore
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import (
    Blocker,
    Owner,
    QueuedRequest,
    Request,
    blockers,
    covering_lease,
    missed_run_lease,
    refuse_older,
)
from airflow_occ_provider.leases.store import (
    Node,
    NodeGoneError,
    NodeTakenError,
    NodeVersionError,
    Store,
    Version,
)

# Each round but the last met a change by another process, or an answer later than the TTL allows.
_ROUNDS = 20


def rounds_of(what: str) -> Iterator[None]:
    """Yield for each round of a call that is repeated after others' changes.

    :param what: what the call could not do, for the error.
    :raises LockUnreachableError: after too many rounds, so that each call ends.
    """
    yield from [None] * _ROUNDS
    raise LockUnreachableError(
        f"{what} ({_ROUNDS} times)",
        remedy="check how long the lock service takes for an answer, beside the TTL of the connection",
    )


@dataclass(frozen=True, slots=True)
class OwnNode:
    """An own node as last read or written, and the clock before the write."""

    content: Content
    version: Version
    written_s: float = float("-inf")


class OwnNodes:
    """The own nodes of a queue, and how long each is trusted to exist.

    :param on_end: called with the name of a request that was released or lost.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], mark: str, on_end: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_end = on_end
        self._mark = mark
        self._nodes: dict[str, OwnNode] = {}

    def create(self, name: str, request: Request, requires: str | None) -> Node:
        """Create the node of a request, if the required node exists.

        :raises NodeTakenError: if a node of the name exists already.
        :raises NodeGoneError: if the required node does not exist.
        """
        content = Content(request, 1, request.ttl_ms, self._mark)
        written_s = self._clock()
        node = self._store.create(name, content.encode(), requires)
        self._nodes[name] = OwnNode(content, node.version, written_s)
        return node

    def mine(self, ticket: Ticket) -> OwnNode:
        """Return the ticket's node, read again if it is not known.

        :raises LeaseLostError: if it is gone, or another process adopted it.
        """
        own_node = self._nodes.get(ticket.name)
        return own_node if own_node and own_node.content.epoch == ticket.epoch else self._load(ticket)

    def trusted(self, ticket: Ticket) -> OwnNode:
        """Return the ticket's node, renewed if it may be close to its expiry.

        :raises LeaseLostError: as for ``mine``.
        """
        own_node = self._nodes.get(ticket.name)
        if own_node and own_node.content.epoch == ticket.epoch and self.is_trusted(own_node):
            return own_node
        return self.write(ticket, lambda content: content)

    def is_trusted(self, own_node: OwnNode) -> bool:
        """Return whether a node cannot have expired yet."""
        return self._clock() - own_node.written_s < own_node.content.term_ms / 1000 * TRUSTED

    def write(self, ticket: Ticket, change: Callable[[Content], Content]) -> OwnNode:
        """Replace the content of the ticket's node and return the node.

        :raises LeaseLostError: as for ``mine``.
        """
        rounds = rounds_of(f"request {ticket.id} could not be renewed")
        while True:
            next(rounds)
            own_node = self.mine(ticket)
            with suppress(NodeVersionError):
                own_node = self._put(ticket, change(own_node.content), own_node.version)
                if not self.is_trusted(own_node):
                    self._load(ticket)  # the answer came so late that a rival may be granted by now
                return own_node
            self.forget(ticket.name)

    def adopt(self, ticket: Ticket, request: Request | None = None) -> Ticket:
        """Adopt a request.

        :param ticket: of the request.
        :param request: the owner's repeated request, valid for any epoch; ``None`` if the ticket's epoch
            must be current.
        :raises LeaseLostError: if the request is gone, or another process adopted it.
        """
        own_node = self._load(ticket, any_epoch=True)
        rounds = rounds_of(f"request {ticket.id} could not be adopted")
        while True:
            next(rounds)
            held, epoch = own_node.content.request, own_node.content.epoch
            if request and request_node.is_revoked(own_node.content.mark):  # it is queued anew
                with suppress(NodeVersionError, NodeGoneError):
                    self._store.delete(ticket.name, own_node.version)
                raise self.lost(ticket, ticket.taken(own_node.content.mark))
            if request:
                refuse_older(request, [own_request(ticket, held)])
                held = replace(held, incarnation=request.incarnation)
            is_next = held == own_node.content.request if request else epoch == ticket.epoch + 1
            if own_node.content.mark == self._mark and is_next:
                return replace(ticket, epoch=epoch)  # an own write whose answer was lost
            if epoch != ticket.epoch and not request:
                raise self.lost(ticket, ticket.taken(own_node.content.mark))
            # A driver may live on the term of the process before; the next renewal sets another one.
            term_ms = max(held.ttl_ms, own_node.content.term_ms)
            taken = replace(
                own_node.content, request=held, epoch=epoch + 1, term_ms=term_ms, mark=self._mark
            )
            with suppress(NodeVersionError):
                self._put(ticket, taken, own_node.version)
                return replace(ticket, epoch=epoch + 1)
            own_node = self._load(ticket, any_epoch=True)

    def revoke(self, queued: QueuedRequest, mark: str) -> bool:
        """Begin an epoch of any owner's request, whose owner then reads the mark.

        :return: whether the request was there, and could be changed.
        """
        rounds = rounds_of(f"request {queued.request.id} could not be revoked")
        while node := self._store.read([queued.name], latest=True).get(queued.name):
            next(rounds)
            if node.token != queued.token or queued.unknown:
                break
            content = Content.decode(node.data, queued.name)
            taken = replace(content, epoch=content.epoch + 1, mark=mark)
            with suppress(NodeVersionError, NodeGoneError):
                self._store.replace(queued.name, taken.encode(), node.version)
                return True
        return False

    def release(self, ticket: Ticket) -> bool:
        """Delete the ticket's node; return whether it was still there and the ticket's."""
        rounds = rounds_of(f"request {ticket.id} could not be released")
        with suppress(LeaseLostError, NodeGoneError):
            while True:
                next(rounds)
                own_node = self.mine(ticket)
                with suppress(NodeVersionError):
                    self._store.delete(ticket.name, own_node.version)
                    self._on_end(ticket.name)
                    return True
                self.forget(ticket.name)
        self._on_end(ticket.name)
        return False

    def forget(self, name: str) -> None:
        """Discard what is known of a node, so that the next call reads it."""
        self._nodes.pop(name, None)

    def lost(self, ticket: Ticket, cause: str) -> LeaseLostError:
        """Return the error for a lost lease, after discarding what is known of it."""
        self._on_end(ticket.name)
        return ticket.lost(cause, "the lease's TTL")

    def _put(self, ticket: Ticket, content: Content, version: Version) -> OwnNode:
        written_s = self._clock()
        self.forget(ticket.name)  # without an answer the current term is unknown
        try:
            version = self._store.replace(ticket.name, content.encode(), version)
        except NodeGoneError:
            raise self.lost(ticket, "it was removed") from None
        self._nodes[ticket.name] = own_node = OwnNode(content, version, written_s)
        return own_node

    def _load(self, ticket: Ticket, *, any_epoch: bool = False) -> OwnNode:
        # Not by a read that may be stale: the caller may act on a lost lease at once.
        node = self._store.read([ticket.name], latest=True).get(ticket.name)
        if node is None or node.token != ticket.token:
            raise self.lost(ticket, "it was removed")
        content = Content.decode(node.data, ticket.name)
        if content.epoch != ticket.epoch and not any_epoch:
            raise self.lost(ticket, ticket.taken(content.mark))
        return OwnNode(content, node.version)


def own_request(ticket: Ticket, request: Request) -> QueuedRequest:
    """Return a ticket's request with its position in the queue."""
    return QueuedRequest(request, ticket.name, request_node.order(ticket.name, ticket.token))


class Queue:
    """One fair queue per table, over a store. Threads may share it.

    A request ends only with the deletion of its node, and is not held while a conflicting earlier node
    exists. A request that is not renewed within its TTL is removed by a waiter.

    Every method can be repeated if its answer was lost, and waits for a bounded time. It raises
    ``LockUnreachableError`` if the store does not answer in that time. An answer may be out of date when
    the caller acts on it: a lease orders writers, Hudi's commit check is the fence.

    :param store: of the requests.
    :param clock: a monotonic clock, in seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._store = cast("Store", TimedStore(store, clock, self._on_delay))
        self._observer = Observer(self._store, clock)
        self._reader = Reader(self._store, self._observer, self._forget_others)
        self._own_nodes = OwnNodes(self._store, clock, uuid.uuid4().hex, self._forget)
        self._predecessors: dict[str, set[str]] = {}
        self._watched: dict[str, tuple[str, Callable[[], None]]] = {}

    def request(self, request: Request) -> Ticket:
        """Queue a request; if one with the same id is queued, adopt that one.

        The requests that it supersedes are withdrawn. A created request is checked again before it
        counts: two requests that are created at the same time do not see each other before both are
        queued.

        :raises LeaseRefusedError: if the owner's run holds a lease that does not cover the request, or
            a later try of the owner is queued.
        """
        created = ""
        rounds = rounds_of(f"request {request.id} could not be queued")
        while True:
            next(rounds)
            queue = self._reader.read(request_node.related_names(request, self._store.stamps()))
            refuse_older(request, queue)
            same = sorted(
                (queued for queued in queue if queued.request.id == request.id),
                key=lambda queued: queued.order,
            )
            with suppress(LeaseLostError, NodeGoneError, NodeTakenError):
                if not same:
                    created = self._create(request, queue)
                elif missed_run_lease(first := same[0], queue):
                    self._remove(first, request)
                else:
                    for duplicate in same[1:]:
                        self._remove(duplicate, request)
                    ticket = Ticket(request.id, first.name, first.token, 1)
                    return ticket if first.name == created else self._own_nodes.adopt(ticket, request)

    def status(
        self,
        ticket: Ticket,
        wake: Callable[[], None] | None = None,
        *,
        age_s: float = 0.0,
        until_next: bool = False,
    ) -> Status:
        """Return the request's status, after removing expired requests before it.

        :param ticket: of the request.
        :param wake: called once, in any thread, when the status may have changed.
        :param age_s: seconds that the answer may be old, if that saves a request. A held lease stays
            held until its request is removed, so that no answer of an earlier moment grants too much.
        :param until_next: whether to wake the caller once the request may be the next one, too.
        :raises LeaseLostError: if the request is gone, or another process adopted it.
        """
        rounds = rounds_of(
            f"the status of request {ticket.id} changed at each look, or each came too late"
        )
        while True:
            next(rounds)
            own_node = self._own_nodes.trusted(ticket)
            names, age_s = self._reader.names(age_s), 0.0  # a listing that led to nothing is replaced
            if ticket.name not in names:
                raise self._own_nodes.lost(ticket, "it was removed")
            try:
                blocked_by = self._blockers(ticket, own_node.content.request, names)
            except NodeGoneError:
                continue  # a request whose covering lease is gone is missing from the names
            if not blocked_by and self._own_nodes.is_trusted(own_node):
                return Status()
            if self._observer.remove_expired(
                (blocker.queued for blocker in blocked_by), own_node.content.request.ttl_ms
            ):
                continue
            if not blocked_by:
                continue
            status = Status(blocked_by)
            # The latest predecessor usually ends last: one watch, and one wake-up per grant. Once the
            # earliest one has ended, another request is the next.
            watched = blocked_by[0 if until_next and not status.is_next else -1].queued
            # A foreign node may refuse a watch; it is polled anyway.
            is_foreign = request_node.parse(watched.name) is None
            if wake is None or is_foreign or self._watch(ticket.name, watched.name, wake):
                return status

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:
        """Renew the request.

        :param ticket: of the request.
        :param ttl_ms: milliseconds until it expires without another renewal. Default: as requested.
        :raises LeaseLostError: as for ``status``.
        """
        self._own_nodes.write(
            ticket, lambda content: replace(content, term_ms=ttl_ms or content.request.ttl_ms)
        )

    def announce(self, ticket: Ticket, instants: Sequence[str]) -> None:
        """Record in the request which writes its owner has begun.

        :param instants: requested times, in place of those that were announced before.
        :raises LeaseLostError: as for ``status``.
        """
        self._own_nodes.write(ticket, lambda content: replace(content, instants=tuple(instants)))

    def announced(self, ticket: Ticket, table: str) -> Mapping[str, Owner]:
        """Return the owners of the writes that a table's other requests have announced.

        :param table: canonical base path.
        """
        names = request_node.names_of_tables([table], self._reader.names() - {ticket.name})
        nodes = self._store.read(name for name in names if request_node.parse(name))
        announcements = (request_node.announced(name, node) for name, node in nodes.items())
        return {
            instant: owner for announcement in announcements for instant, owner in announcement.items()
        }

    def sweep(self, ticket: Ticket) -> None:
        """Remove the request's direct predecessor if it has expired.

        Expired requests therefore do not pile up when no request conflicts with them. Call it with
        every renewal.
        """
        mine = own_request(ticket, self._own_nodes.mine(ticket).content.request)
        period_s = mine.request.ttl_ms / 1000 / RENEWALS_PER_TTL
        names = self._reader.recent_names(self._clock(), period_s / 2)
        concerned = self._reader.read(request_node.names_of_tables(mine.request.tables, names))
        earlier = [queued for queued in concerned if queued.order < mine.order and not queued.unknown]
        if earlier:
            last = max(earlier, key=lambda queued: queued.order)
            self._observer.remove_expired([last], mine.request.ttl_ms)

    def ensure_held(self, ticket: Ticket) -> None:
        """Return if the lock service confirms that the lease is held.

        :raises LeaseLostError: if it is not.
        """
        self.renew(ticket)
        if blocked_by := self.status(ticket).blockers:
            raise self._own_nodes.lost(ticket, f"it is blocked by {blocked_by[0].queued.request.owner}")

    def adopt(self, ticket: Ticket) -> Ticket:
        """Take the request over from another process and invalidate that one's ticket.

        :raises LeaseLostError: if the request is gone, or another process adopted it.
        """
        return self._own_nodes.adopt(ticket)

    def release(self, ticket: Ticket) -> bool:
        """Remove the request; return whether it was still there and the ticket's."""
        return self._own_nodes.release(ticket)

    def revoke(self, queued: QueuedRequest, by: str) -> bool:
        """Take any owner's request from it by force; return whether it was there.

        The owner reads the account at its next renewal, and stops. Until it is evicted, or expires, the
        request still blocks others. If the owner requests it again, it is queued anew.

        :param queued: the request.
        :param by: the account, and when, as text.
        """
        return self._own_nodes.revoke(queued, request_node.revoked_mark(by))

    def evict(self, queued: QueuedRequest) -> bool:
        """Remove any owner's request by force; return whether it was there.

        Its owner notices at its next renewal, and may be writing until then.

        :param queued: the request.
        """
        return self._remove(queued)

    def requests(self, table: str | None = None) -> tuple[QueuedRequest, ...]:
        """Return all requests, earliest first, with the times of their last renewals.

        :param table: canonical base path of one table; ``None`` for all tables.
        """
        return self._requests(table, renewals=True)

    def requests_of_run(self, owner: Owner) -> tuple[QueuedRequest, ...]:
        """Return the requests of an owner's run, earliest first.

        :param owner: any owner of the run.
        """
        requests = self._reader.read(request_node.names_of_run(owner, self._reader.names()))
        of_run = (queued for queued in requests if queued.request.owner.is_of_run(owner))
        return tuple(sorted(of_run, key=lambda queued: queued.order))

    def live_requests(self, table: str) -> tuple[QueuedRequest, ...]:
        """Return a table's requests, after removing expired ones.

        A request is known to be expired only after calls over a whole term, of this process or of an
        earlier one whose observations it recalls.

        :param table: canonical base path.
        """
        requests = self._requests(table)
        shortest_ms = min((queued.request.ttl_ms for queued in requests), default=0)
        return (
            self._requests(table) if self._observer.remove_expired(requests, shortest_ms) else requests
        )

    def observations(self, table: str) -> dict[str, Any]:
        """Return what this process has observed of a table's requests, as JSON values.

        Processes that look once each pass it on, or a dead request never expires for them.

        :param table: canonical base path.
        """
        names = request_node.names_of_tables([table], self._reader.names())
        return {"at_ms": round(time.time() * 1000), "requests": self._observer.observations(names)}

    def recall(self, observations: Mapping[str, Any]) -> None:
        """Continue from what an earlier process observed.

        :param observations: what ``observations`` returned there; not empty.
        """
        with suppress(KeyError, TypeError, AttributeError):  # another release's: the terms start again
            age_s = time.time() - observations["at_ms"] / 1000
            self._observer.recall(observations["requests"], age_s)

    def close(self) -> None:
        """Close the connection; requests stay until they expire."""
        self._store.close()

    def _requests(self, table: str | None, *, renewals: bool = False) -> tuple[QueuedRequest, ...]:
        names = self._reader.names()
        concerned = request_node.names_of_tables([table], names) if table else names
        queue = self._reader.read(concerned, renewals=renewals)
        return tuple(sorted(queue, key=lambda queued: queued.order))

    def _create(self, request: Request, queue: list[QueuedRequest]) -> str:
        """Create the node of a request, instead of those that it supersedes."""
        for queued in queue:
            if queued.request.id in request.supersedes:
                self._remove(queued, request)
        lease = covering_lease(
            request, [queued for queued in queue if queued.request.owner != request.owner]
        )
        name = request_node.name_of(request, uuid.uuid4().hex[:8], lease.order if lease else ())
        node = self._own_nodes.create(name, request, lease.name if lease else None)
        self._reader.add(name, node)
        return name

    def _remove(self, queued: QueuedRequest, request: Request | None = None) -> bool:
        """Remove a request in its current version; return whether it was there.

        :param request: the owner's new request: refused if a later try adopted the other one.
        """
        rounds = rounds_of(f"request {queued.request.id} could not be removed")
        while node := self._store.read([queued.name], latest=True).get(queued.name):
            next(rounds)
            if node.token != queued.token and not queued.unknown:
                break
            if request:
                current = Content.decode(node.data, queued.name).request
                refuse_older(request, [replace(queued, request=current)])
            with suppress(NodeVersionError, NodeGoneError):
                self._store.delete(queued.name, node.version)
                return True
        return False

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        mine = own_request(ticket, request)
        predecessors = self._predecessors.get(ticket.name)
        if predecessors is None:
            concerned = self._reader.read_all(request_node.names_of_tables(request.tables, names))
            predecessors = {queued.name for queued in concerned if queued.order < mine.order}
        else:
            # Other requests cannot get in front of this one any more.
            late = [name for name in names - predecessors if _may_precede(name, mine)]
            predecessors = (predecessors & names).union(late)
        self._predecessors[ticket.name] = predecessors
        return blockers(mine, self._reader.read_all(predecessors))

    def _watch(self, waiter: str, predecessor: str, wake: Callable[[], None]) -> bool:
        """Wake a waiter when its predecessor is gone; return whether it exists now."""
        if self._watched.get(waiter) == (predecessor, wake):
            return True

        def fired() -> None:
            self._watched.pop(waiter, None)
            wake()

        self._watched[waiter] = (predecessor, wake)
        exists = False
        try:
            exists = self._store.on_delete(predecessor, fired)
        finally:
            # Without an answer there may be no watch; the next call sets one.
            if not exists:
                self._watched.pop(waiter, None)
        return exists

    def _on_delay(self, seconds: float) -> None:
        self._observer.on_delay(seconds)

    def _forget_others(self, names: frozenset[str]) -> None:
        for name in list(self._predecessors.keys() - names):
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._own_nodes.forget(name)
        self._predecessors.pop(name, None)
        self._watched.pop(name, None)


def _may_precede(name: str, mine: QueuedRequest) -> bool:
    """Return whether a request queued after another one may be positioned before it."""
    parts = request_node.parse(name)
    return parts is None or () < parts.under < mine.order
