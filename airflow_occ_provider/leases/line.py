"""The line over a store of nodes: one node a request, granted by what stands before it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.attentive_nodes import AttentiveNodes
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.nodes import NodeGoneError, NodeMovedError, Nodes, NodeTakenError
from airflow_occ_provider.leases.observer import TRUSTED, Observer
from airflow_occ_provider.leases.own_run import came_beside, refuse_older, umbrella
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Blocker, Owner, Request, Standing, blockers
from airflow_occ_provider.leases.wakes import Wakes


@dataclass(frozen=True, slots=True)
class _Own:
    """A node of ours as it was written or read last; ``written_s`` is the clock before the write."""

    content: Content
    version: int
    written_s: float = float("-inf")


class Line:
    """A ``LeaseService`` over a store of nodes. Threads may share it.

    A request ends by the deletion of its node only, and nobody is granted while a conflicting elder
    node is there. What is known of others is what never changes: who asked for what, and when.

    :param nodes: the store.
    :param clock: seconds that never go back.
    """

    def __init__(self, nodes: Nodes, clock: Callable[[], float] = time.monotonic) -> None:
        self._nodes: Nodes = AttentiveNodes(nodes, clock, self._disturbed)
        self._clock = clock
        self._observer = Observer(self._nodes, clock)
        self._mark = uuid.uuid4().hex
        self._known: dict[str, Standing] = {}
        self._elders: dict[str, set[str]] = {}
        self._own: dict[str, _Own] = {}
        self._wakes = Wakes(self._nodes)

    @property
    def reaper(self) -> str:
        """Who removes the dead, and when, in words for who waits."""
        return "Who dies is removed by those who wait for him, a time to live after his last renewal."

    def request(self, asked: Request) -> Ticket:
        """Stand in line; asked again with the same id, take the first request over.

        What is created is looked at again before it counts: two requests that are made at once do not
        see each other before both stand in line.
        """
        created = ""
        while True:
            line = self._look(request_node.akin(asked, self._nodes.names()))
            refuse_older(asked, line)
            same = sorted((one for one in line if one.request.id == asked.id), key=lambda one: one.order)
            with suppress(LeaseLostError, NodeGoneError, NodeTakenError):
                if not same:
                    created = self._create(asked, self._without_earlier(line, asked))
                elif came_beside(first := same[0], line):
                    self._give_up(first, asked)
                else:
                    for twin in same[1:]:
                        self._give_up(twin, asked)
                    ticket = Ticket(asked.id, first.name, first.token, 1)
                    return ticket if first.name == created else self._adopt(ticket, asked)

    def status(self, ticket: Ticket, wake: Callable[[], None] | None = None) -> Status:
        """Tell where the request stands, and remove who is dead before it."""
        while True:
            own = self._trusted(ticket)
            names = self._names()
            if ticket.name not in names:
                raise self._lost(ticket, "it was removed")
            try:
                found = self._blockers(ticket, own.content.request, names)
            except NodeGoneError:
                continue  # what came in under a lease that went is not among the names
            if not found and self._is_trusted(own):
                return Status()
            if self._observer.remove_dead((one.standing for one in found), own.content.request.ttl_ms):
                continue
            if not found:
                continue
            # The youngest elder leaves last: one watch, and one message when it is our turn.
            last = found[-1].standing
            # A foreign node may refuse a watch, and is looked at regularly all the same.
            is_foreign = request_node.parse(last.name) is None
            if wake is None or is_foreign or self._wakes.set(ticket.name, last.name, wake):
                return Status(found)

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:
        """Show that its owner lives."""
        self._write(ticket, lambda held: replace(held, term_ms=ttl_ms or held.request.ttl_ms))

    def sweep(self, ticket: Ticket) -> None:
        """Remove who is dead right before the request, though it does not wait for him."""
        mine = self._standing(ticket, self._mine(ticket).content.request)
        concerned = self._look(request_node.about(mine.request.tables, self._names()))
        elders = [one for one in concerned if one.order < mine.order and not one.unknown]
        if elders:
            last = max(elders, key=lambda one: one.order)
            self._observer.remove_dead([last], mine.request.ttl_ms)

    def ensure_held(self, ticket: Ticket) -> None:
        """Return if the lease is held, by the store's own word."""
        self.renew(ticket)
        found = self.status(ticket).blockers
        if found:
            raise self._lost(ticket, f"it waits for {found[0].standing.request.owner}")

    def adopt(self, ticket: Ticket) -> Ticket:
        """Take the request over from another process, whose ticket is refused from then on."""
        return self._adopt(ticket)

    def release(self, ticket: Ticket) -> bool:
        """Leave the line; whether the request was still there and the ticket's."""
        with suppress(LeaseLostError, NodeGoneError):
            while True:
                own = self._mine(ticket)
                with suppress(NodeMovedError):
                    self._nodes.delete(ticket.name, own.version)
                    self._forget(ticket.name)
                    return True
                self._own.pop(ticket.name, None)
        self._forget(ticket.name)
        return False

    def evict(self, standing: Standing) -> bool:
        """Remove a request by force, whoever owns it; whether it was there.

        Its owner learns it with his next renewal, not before: he may be writing.
        """
        return self._remove(standing, lambda _: None)

    def line(self, table: str | None = None) -> tuple[Standing, ...]:
        """Return who stands in line, eldest first."""
        names = self._names()
        line = self._look(request_node.about([table], names) if table else names)
        return tuple(sorted(line, key=lambda one: one.order))

    def own_run(self, owner: Owner) -> tuple[Standing, ...]:
        """Return the requests of an owner's run, eldest first; the others are not read."""
        found = self._look(request_node.of_run(owner, self._names()))
        own = (one for one in found if one.request.owner.is_of_run(owner))
        return tuple(sorted(own, key=lambda one: one.order))

    def living(self, table: str) -> tuple[Standing, ...]:
        """Return who stands in line for a table, and remove who is dead: that takes looks for a term."""
        found = self.line(table)
        shortest_ms = min((one.request.ttl_ms for one in found), default=0)
        return self.line(table) if self._observer.remove_dead(found, shortest_ms) else found

    def close(self) -> None:
        """End the connection; what was requested stays until its time to live is over."""
        self._nodes.close()

    def _create(self, asked: Request, others: Iterable[Standing]) -> str:
        over = umbrella(asked, others)
        name = request_node.name_of(asked, uuid.uuid4().hex[:8], over.order if over else ())
        content = Content(asked, 1, asked.ttl_ms, self._mark)
        written_s = self._clock()
        node = self._nodes.create(name, content.encode(), over.name if over else None)
        self._own[name] = _Own(content, node.version, written_s)
        self._known[name] = request_node.standing(name, node)
        return name

    def _without_earlier(self, line: list[Standing], asked: Request) -> list[Standing]:
        """Give up the requests that are superseded, and return those of other owners."""
        for one in line:
            if one.request.id in asked.supersedes:
                self._give_up(one, asked)
        return [one for one in line if one.request.owner != asked.owner]

    def _give_up(self, standing: Standing, asked: Request) -> None:
        """Remove a request of the task's own, unless a younger try took it over."""
        self._remove(
            standing,
            lambda data: refuse_older(
                asked, [replace(standing, request=Content.decode(data, standing.name).request)]
            ),
        )

    def _remove(self, standing: Standing, allow: Callable[[bytes], None]) -> bool:
        """Remove a request as it stands; whether it was there.

        :param allow: raises for a content whose node shall stay.
        """
        while node := self._nodes.latest([standing.name]).get(standing.name):
            if node.token != standing.token and not standing.unknown:
                break
            allow(node.data)
            with suppress(NodeMovedError, NodeGoneError):
                self._nodes.delete(standing.name, node.version)
                return True
        return False

    def _adopt(self, ticket: Ticket, asked: Request | None = None) -> Ticket:
        """Take a request over.

        :param ticket: of the request.
        :param asked: by which its owner asked again, whatever the ticket's epoch; ``None`` for the
            ticket's own right.
        """
        own = self._load(ticket, any_epoch=True)
        while True:
            held, epoch = own.content.request, own.content.epoch
            if asked:
                refuse_older(asked, [self._standing(ticket, held)])
                held = replace(held, incarnation=asked.incarnation)
            is_next = held == own.content.request if asked else epoch == ticket.epoch + 1
            if own.content.mark == self._mark and is_next:
                return replace(ticket, epoch=epoch)  # our own write, whose answer was lost
            if epoch != ticket.epoch and not asked:
                raise self._lost(ticket, "another process took it over")
            taken = replace(
                own.content, request=held, epoch=epoch + 1, term_ms=held.ttl_ms, mark=self._mark
            )
            with suppress(NodeMovedError):
                self._put(ticket, taken, own.version)
                return replace(ticket, epoch=epoch + 1)
            own = self._load(ticket, any_epoch=True)

    def _write(self, ticket: Ticket, change: Callable[[Content], Content]) -> _Own:
        while True:
            own = self._mine(ticket)
            with suppress(NodeMovedError):
                return self._put(ticket, change(own.content), own.version)
            self._own.pop(ticket.name, None)

    def _put(self, ticket: Ticket, content: Content, version: int) -> _Own:
        written_s = self._clock()
        self._own.pop(ticket.name, None)  # without an answer it is not known which term runs
        try:
            version = self._nodes.write(ticket.name, content.encode(), version)
        except NodeGoneError:
            raise self._lost(ticket, "it was removed") from None
        self._own[ticket.name] = own = _Own(content, version, written_s)
        return own

    def _mine(self, ticket: Ticket) -> _Own:
        own = self._own.get(ticket.name)
        return own if own and own.content.epoch == ticket.epoch else self._load(ticket)

    def _load(self, ticket: Ticket, *, any_epoch: bool = False) -> _Own:
        # Not by a read that may lag behind: what is told lost may be released and worked under.
        node = self._nodes.latest([ticket.name]).get(ticket.name)
        if node is None or node.token != ticket.token:
            raise self._lost(ticket, "it was removed")
        content = Content.decode(node.data, ticket.name)
        if content.epoch != ticket.epoch and not any_epoch:
            raise self._lost(ticket, "another process took it over")
        return _Own(content, node.version)

    def _trusted(self, ticket: Ticket) -> _Own:
        """Return the own node as written so lately that nobody can have taken its owner for dead."""
        own = self._own.get(ticket.name)
        if own and own.content.epoch == ticket.epoch and self._is_trusted(own):
            return own
        return self._write(ticket, lambda content: content)

    def _is_trusted(self, own: _Own) -> bool:
        return self._clock() - own.written_s < own.content.term_ms / 1000 * TRUSTED

    def _blockers(self, ticket: Ticket, request: Request, names: frozenset[str]) -> tuple[Blocker, ...]:
        mine = self._standing(ticket, request)
        elders = self._elders.get(ticket.name)
        if elders is None:
            concerned = self._look_at_all(request_node.about(request.tables, names))
            elders = {one.name for one in concerned if one.order < mine.order}
        else:
            # Nobody else can come in before us any more.
            late = [name for name in names - elders if _comes_late(name, mine)]
            elders = (elders & names).union(late)
        self._elders[ticket.name] = elders
        return blockers(mine, self._look_at_all(elders))

    def _standing(self, ticket: Ticket, request: Request) -> Standing:
        return Standing(request, ticket.name, request_node.order(ticket.name, ticket.token))

    def _look_at_all(self, names: Collection[str]) -> list[Standing]:
        """Return the requests of some nodes.

        :raises NodeGoneError: if one is gone.
        """
        found = self._look(names)
        if len(found) < len(names):
            raise NodeGoneError("one of the names")
        return found

    def _look(self, names: Iterable[str]) -> list[Standing]:
        """Return the requests of some nodes; only those not read before are read."""
        wanted = set(names)
        found = {name: known for name in wanted if (known := self._known.get(name))}
        unread = {name for name in wanted - found.keys() if request_node.parse(name)}
        nodes = self._nodes.read(unread) if unread else {}
        if missing := unread - nodes.keys():  # gone since, or not yet seen by a server that lags behind
            nodes |= self._nodes.latest(missing)
        for name in nodes.keys() | (wanted - found.keys() - unread):
            self._known[name] = found[name] = request_node.standing(name, nodes.get(name))
        self._observer.saw(nodes)
        return list(found.values())

    def _disturbed(self, seconds: float) -> None:
        self._observer.disturbed(seconds)

    def _names(self) -> frozenset[str]:
        names = self._nodes.names()
        for name in list(self._known.keys() - names):
            self._known.pop(name, None)
        for name in list(self._elders.keys() - names):
            self._forget(name)
        self._observer.forget_all_but(names)
        return names

    def _forget(self, name: str) -> None:
        self._own.pop(name, None)
        self._elders.pop(name, None)
        self._wakes.forget(name)

    def _lost(self, ticket: Ticket, why: str) -> LeaseLostError:
        self._forget(ticket.name)
        return LeaseLostError(
            f"the lease of request {ticket.id} is lost: {why}",
            remedy="nothing, if the task is retried; if it happens again, look whether its processes "
            "are stopped for longer than the lease's time to live",
        )


def _comes_late(name: str, mine: Standing) -> bool:
    """Whether a request that came after another one stands before it, or may."""
    known = request_node.parse(name)
    return known is None or () < known.under < mine.order
