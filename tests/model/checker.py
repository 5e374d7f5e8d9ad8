"""Checks every operation of a store, in order, against the queue's promises.

It states the rules again and parses nodes itself, so that it shares no mistake with the queue.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.rules import Request
from airflow_occ_provider.leases.store import Node

# An observer waits 2 % longer than the term, on a clock that may be 4 % slow.
SLACK = 1.02 / 0.96
# The least share of its term after which a request may be removed, by a clock that is 4 % fast.
LEAST = 1.02 / 1.04


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass
class Entry:
    """A node; the fields before ``epoch`` never change."""

    name: str
    path: tuple[str, ...]
    owner: tuple[tuple[str, ...], str]
    scopes: list[tuple[str, str, list[str] | None]]
    token: int
    order: tuple[int, ...]
    epoch: int
    term_s: float
    writer: object
    written_s: float
    ttl_s: float
    id: str
    incarnation: int  # of the latest try that requested it
    trusted_until_s: dict[int, float] = field(default_factory=dict)  # by an epoch's owner, once it ended


@dataclass
class QueueView:
    """The queue as a client last read it."""

    at: int
    queue: dict[str, Entry] = field(default_factory=dict)


class Checker:
    def __init__(self, now: Callable[[], float], counts: Counter[str]) -> None:
        self.now = now
        self.counts = counts
        self.nodes: dict[str, Entry] = {}
        self.removed: dict[str, str] = {}
        self.holders: dict[str, Entry] = {}
        self.granted: dict[str, Entry] = {}
        self.views: dict[object, QueueView] = {}
        self.operations = 0
        self.trace = 0
        self.away: list[
            tuple[float, float]
        ] = []  # start and end of each time in which no client reached the store
        self._last_token = 0

    # The store's operations, in order.

    def created(
        self,
        client: object,
        name: str,
        data: bytes,
        requires: str | None,
        node: Node,
        action: tuple[str, object],
    ) -> None:
        self._record("create", name, data)
        if node.token <= self._last_token:
            raise ViolationError(f"token {node.token} came after {self._last_token}")
        self._last_token = node.token
        if requires is not None and requires not in self.nodes:
            raise ViolationError(f"{name} is covered by {requires}, which is gone")
        content = json.loads(data)
        if requires and content["owner"][: len(over := self.nodes[requires].path)] != list(over):
            raise ViolationError(f"{content['owner']} passes under a lease of {over}")
        above = self.nodes[requires].order if requires else ()
        self.nodes[name] = Entry(
            name,
            tuple(content["owner"]),
            (tuple(content["owner"]), content["label"]),
            content["scopes"],
            node.token,
            (*above, node.token),
            content["epoch"],
            content["term_ms"] / 1000,
            client,
            self.now(),
            content["ttl_ms"] / 1000,
            content["id"],
            action[1].incarnation if isinstance(action[1], Request) else 0,
        )

    def wrote(self, client: object, name: str, data: bytes, action: tuple[str, object]) -> None:
        self._record("write", name, data)
        content, entry = json.loads(data), self.nodes[name]
        if isinstance(asked := action[1], Request):
            self._is_not_older(asked, entry)
            entry.incarnation = asked.incarnation
        if content["epoch"] < entry.epoch:
            raise ViolationError(f"the epoch of {name} went back to {content['epoch']}")
        if client != entry.writer and content["epoch"] == entry.epoch:
            raise ViolationError(f"two processes write {name} in epoch {entry.epoch}")
        if content["epoch"] > entry.epoch:
            self.counts["adoptions"] += 1
            entry.trusted_until_s[entry.epoch] = self.now() + entry.term_s
        entry.epoch, entry.term_s, entry.writer = content["epoch"], content["term_ms"] / 1000, client
        entry.written_s = self.now()

    def deleted(self, name: str, action: tuple[str, object]) -> None:
        self._record("delete", name, repr(action[0]).encode())
        entry, (kind, by) = self.nodes.pop(name), action
        self.holders.pop(name, None)
        if kind == "release":
            assert isinstance(by, Ticket)
            if by.name != name or by.epoch != entry.epoch:
                raise ViolationError(f"{name} of epoch {entry.epoch} was released by {by}")
            self.removed[name] = "released"
        elif isinstance(by, Request):
            self._is_not_older(by, entry)
            self.removed[name] = "superseded"
        else:
            stood_s = self.now() - entry.written_s - self._unreachable_s(entry)
            if stood_s < entry.term_s * LEAST:
                raise ViolationError(
                    f"{name} was removed after {stood_s} s in which it could have been renewed, "
                    f"written for {entry.term_s} s"
                )
            self.removed[name] = "dead"
            self.counts["evictions"] += 1

    def named(self, client: object, names: Iterable[str]) -> None:
        if set(names) != set(self.nodes):
            raise ViolationError("the names are not those of the nodes that are there")
        self._record("names", "", b"")
        self.views[client] = QueueView(self.operations, dict(self.nodes))

    # The answers that clients got.

    def on_held(self, client: object, ticket: Ticket) -> None:
        """Check the answer; the client holds from now until the node is gone."""
        queue = self.views[client].queue
        if ticket.name not in queue:
            raise ViolationError(f"{ticket.name} is held, but was not in the queue")
        mine = queue[ticket.name]
        if earlier := _earlier_conflicts(mine, queue.values()):
            raise ViolationError(f"{mine} is held beside earlier conflicting requests {earlier}")
        if self.removed.get(mine.name) == "dead":
            raise ViolationError(f"{mine.name} was reported held after it was removed as dead")
        if mine.name not in self.nodes:
            return  # its owner withdrew it between the read and the answer
        self._is_not_of_old(ticket, mine)
        for other in self.holders.values():
            if other is not mine and _exclude(mine, other):
                raise ViolationError(f"both hold: {mine} and {other}")
        self._is_in_order(mine)
        self.holders[mine.name] = mine

    def on_blocked(self, client: object, ticket: Ticket, blockers: Iterable[str]) -> list[Entry]:
        """Check that the blockers are the earlier conflicting requests; return those still there."""
        queue, blockers = self.views[client].queue, set(blockers)
        if ticket.name not in queue:
            raise ViolationError(f"{ticket.name} waits, but was not in the queue")
        if ticket.name in self.holders:
            raise ViolationError(f"{ticket.name} was reported held, and waits now")
        earlier = {one.name for one in _earlier_conflicts(queue[ticket.name], queue.values())}
        if not blockers <= earlier or not blockers >= earlier & self.nodes.keys():
            raise ViolationError(f"{ticket.name} waits for {blockers}, not for {earlier}")
        return [self.nodes[name] for name in blockers & self.nodes.keys()]

    def on_lost(self, ticket: Ticket) -> None:
        now = self.nodes.get(ticket.name)
        if now and now.epoch == ticket.epoch:
            raise ViolationError(f"{ticket} was reported lost, but exists")
        self.counts["lost"] += 1

    def on_released(self, ticket: Ticket, *, was_there: bool) -> None:
        now = self.nodes.get(ticket.name)
        if not was_there and now and now.epoch == ticket.epoch:
            raise ViolationError(f"{ticket} was reported gone when it was released, but exists")

    def on_done(
        self, ticket: Ticket, before: tuple[int, object] | None, again_by: object = None
    ) -> None:
        """A renewal or an adoption needs the last epoch; a process may repeat its own adoption."""
        if before is None or (before[0] > ticket.epoch and before[1] != again_by):
            raise ViolationError(f"a zombie's {ticket} was served where {before} was")

    def on_refused(self, client: object, asked: Request) -> None:
        path = (asked.owner.site, *asked.owner.path) if asked.owner.site else asked.owner.path
        queue = self.views[client].queue.values()
        over = [one for one in queue if one.path == path[: len(one.path)]]
        ids = (asked.id, *asked.supersedes)
        later = [one for one in queue if one.id in ids and one.incarnation > asked.incarnation]
        if not over and not later:
            raise ViolationError(f"{asked} was refused, but its run has no lease")
        self.counts["older tries refused" if later else "refusals"] += 1

    def owned(self, name: str) -> tuple[int, object] | None:
        """Return a node's epoch, and the process that wrote it last."""
        entry = self.nodes.get(name)
        return (entry.epoch, entry.writer) if entry else None

    def _unreachable_s(self, entry: Entry) -> float:
        """Return the seconds since its last write in which no client reached the store.

        Of an outage that an observer did not notice, one renewal period may count as inactivity: so
        a dead owner is removed that much earlier, and none that renews again in its next period.
        """
        away = (end - max(start, entry.written_s) for start, end in self.away if end > entry.written_s)
        return sum(max(0.0, seconds - entry.ttl_s / 3) for seconds in away)

    def _is_not_older(self, asked: Request, entry: Entry) -> None:
        """A try may adopt or withdraw its own task's request, unless a later try made it."""
        owner = asked.owner
        path = (owner.site, *owner.path) if owner.site else owner.path
        if (path, owner.label) != entry.owner or entry.id not in (asked.id, *asked.supersedes):
            raise ViolationError(f"{asked} changed {entry}, which another task requested")
        if asked.incarnation < entry.incarnation:
            raise ViolationError(f"{asked} changed {entry} of a later try")

    def _is_not_of_old(self, ticket: Ticket, mine: Entry) -> None:
        if self.now() > mine.trusted_until_s.get(ticket.epoch, self.now()):
            raise ViolationError(f"{ticket} is held a whole term after it was taken over: {mine}")

    def _is_in_order(self, mine: Entry) -> None:
        if mine.name in self.granted:
            return
        for other in self.nodes.values():
            under_earlier = any(token < other.token for token in mine.order[:-1])
            if other.token < mine.token and _exclude(mine, other) and not under_earlier:
                raise ViolationError(f"{mine} overtakes {other}")
        for before in self.granted.values():
            if before.order > mine.order and _exclude(mine, before):
                raise ViolationError(f"{mine} is granted after the later {before}")
        self.granted[mine.name] = mine
        self.counts["grants"] += 1

    def _record(self, what: str, name: str, data: bytes) -> None:
        self.operations += 1
        self.trace = zlib.crc32(f"{what} {name} {self.now()} ".encode() + data, self.trace)


def _earlier_conflicts(mine: Entry, queue: Iterable[Entry]) -> list[Entry]:
    return [
        one
        for one in queue
        if one.order < mine.order and not _is_under(mine, one) and _conflict(mine, one)
    ]


def _exclude(one: Entry, other: Entry) -> bool:
    """Whether they may not both hold: they conflict, and the later did not pass under the earlier."""
    earlier, later = sorted((one, other), key=lambda entry: entry.order)
    return _conflict(one, other) and not _is_under(later, earlier)


def _is_under(one: Entry, other: Entry) -> bool:
    return one.order[: len(other.order)] == other.order


def _conflict(one: Entry, other: Entry) -> bool:
    for table, mode, partitions in one.scopes:
        for their_table, their_mode, their_partitions in other.scopes:
            if table != their_table or mode == their_mode == "shared":
                continue
            if partitions is None or their_partitions is None:
                return True
            for mine in partitions:
                for theirs in their_partitions:
                    if f"{mine}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{mine}/"):
                        return True
    return False
