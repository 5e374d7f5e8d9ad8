"""The nodes of this process's requests: written, renewed, adopted and released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.observer import TRUSTED
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import QueuedRequest, Request, refuse_older
from airflow_occ_provider.leases.store import Node, NodeGoneError, NodeVersionError, Store, Version

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
