"""Pure: the rules of the queue: which request blocks which, and why.

::

    queued --> blocked by every conflicting earlier request --> held --> released, or expired

The order is the one in which the lock service created the requests. Two requests conflict if their
scopes overlap and not both are shared. A request without a conflicting earlier request is held, and
stays held: a later request never gets in front of it. The one exception is a task that the lease of
its own run covers.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.errors import LeaseRefusedError
from airflow_occ_provider.spelling import spell_owner, spell_time

_NAMED = 10
UNKNOWN = "?"
"""Prefix of a table name that this release cannot read; alone: every table."""


class Mode(StrEnum):
    """How a scope is written.

    ``SHARED``: concurrently with other shared writers, with optimistic concurrency control.
    ``EXCLUSIVE``: without any concurrent writer.
    """

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of one table that a writer may touch.

    :param table: the table's canonical base path.
    :param mode: how it is written. A shared scope is always the whole table.
    :param partitions: partition paths, each with everything below it; ``None`` for the whole table.
    """

    table: str
    mode: Mode = Mode.EXCLUSIVE
    partitions: tuple[str, ...] | None = None

    @classmethod
    def of(cls, table: str, partitions: Iterable[str] | None, mode: Mode = Mode.EXCLUSIVE) -> Scope:
        """Return a scope with sorted partitions, without those that another one contains.

        ``None`` or an empty path stands for the whole table.
        """
        if partitions is None or mode is Mode.SHARED:
            return cls(table, mode)
        paths = {path.strip("/") for path in partitions}
        outermost = sorted(path for path in paths if not paths.intersection(_parents(path)))
        return cls(table, mode, None if "" in paths else tuple(outermost))

    def conflicts_with(self, other: Scope) -> bool:
        """Return whether the two scopes must not be written at the same time."""
        if not _may_be_one(self.table, other.table) or self.mode is other.mode is Mode.SHARED:
            return False
        if self.partitions is None or other.partitions is None:
            return True
        return _reaches(self.partitions, other.partitions) or _reaches(other.partitions, self.partitions)

    def covers(self, other: Scope) -> bool:
        """Return whether a lease on this scope includes the other one."""
        if self.table != other.table or (self.mode is Mode.SHARED and other.mode is Mode.EXCLUSIVE):
            return False
        if self.partitions is None:
            return True
        return other.partitions is not None and all(
            _reaches(self.partitions, (path,)) for path in other.partitions
        )

    def __str__(self) -> str:
        return f"{self.table} ({self.mode}, {self.extent})"

    @property
    def extent(self) -> str:
        """The partitions as text, shortened if there are many."""
        if self.partitions is None:
            return "the whole table"
        more = len(self.partitions) - _NAMED
        return ", ".join(self.partitions[:_NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a request: a DAG run, or a task of one.

    :param path: from the DAG down, such as ``(dag, run)`` or ``(dag, run, task, map index)``. The lease
        of an owner can cover requests of owners whose path starts with its path.
    :param label: distinguishes requests of one path: the task that made the request for its run.
    :param site: the Airflow deployment, because two of them may run the same DAG and run id. Empty in
        requests of earlier releases of this provider.
    """

    path: tuple[str, ...]
    label: str = ""
    site: str = ""

    def is_within(self, other: Owner) -> bool:
        """Return whether this owner is the other one or below it."""
        return self.site == other.site and self.path[: len(other.path)] == other.path

    def is_of_run(self, other: Owner) -> bool:
        """Return whether both owners belong to one DAG run."""
        return self.site == other.site and self.path[:2] == other.path[:2]

    def __str__(self) -> str:
        return spell_owner(self.path, label=self.label, site=self.site)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for all scopes that an owner needs, so that no holder waits for more.

    :param id: chosen by the owner; a repeated request with this id finds the first one.
    :param owner: the owner.
    :param scopes: what the owner will write.
    :param ttl_ms: milliseconds without a renewal after which the request expires.
    :param incarnation: rises with every try of the owner; an older try is refused.
    :param supersedes: ids of the owner's earlier requests, which are withdrawn.
    """

    id: str
    owner: Owner
    scopes: tuple[Scope, ...]
    ttl_ms: int
    incarnation: int = 0
    supersedes: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of the scopes, each once."""
        return tuple(dict.fromkeys(scope.table for scope in self.scopes))


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request in the queue, held or waiting.

    :param request: the request.
    :param name: its name in the lock service.
    :param order: its position: the order tokens of the leases that cover it, then its own.
    :param since_ms: epoch milliseconds by the lock service's clock at which it was queued; for display.
    :param unknown: whether this release cannot read it. It blocks, and is never removed as expired.
    :param renewed_ms: epoch milliseconds by the lock service's clock of its last renewal when it was
        read; 0 if that is unknown. For display.
    :param term_ms: milliseconds from then after which it expires; 0 if that is unknown.
    :param instants: requested times of the writes that its owner has announced, when it was read.
    """

    request: Request
    name: str
    order: tuple[int, ...]
    since_ms: int = 0
    unknown: bool = False
    renewed_ms: int = field(default=0, compare=False)
    term_ms: int = field(default=0, compare=False)
    instants: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_claimed(self) -> bool:
        """Whether no process renews it: it is kept for the next process of its task."""
        return self.term_ms > self.request.ttl_ms

    @property
    def expires_ms(self) -> int:
        """Epoch milliseconds at which it expires, if not renewed; 0 if unknown."""
        return self.renewed_ms + self.term_ms if self.renewed_ms and self.term_ms else 0

    def is_fresh(self, now_ms: int) -> bool:
        """Return whether it was renewed within its TTL, so that its process may live.

        :param now_ms: epoch milliseconds; by another clock, the answer is off by their difference.
        """
        return bool(self.renewed_ms) and now_ms - self.renewed_ms < self.request.ttl_ms

    @property
    def token(self) -> int:
        """The order token: greater than the tokens of all earlier requests."""
        return self.order[-1]

    @classmethod
    def unreadable(
        cls, name: str, order: tuple[int, ...], tables: Iterable[str] = (), since_ms: int = 0
    ) -> QueuedRequest:
        """Return a request that this release cannot read: it excludes all others.

        :param order: its position, ``(0,)`` if that is unknown too: before all others.
        :param tables: digests of its tables, none for every table.
        """
        scopes = tuple(Scope(f"{UNKNOWN}{table}") for table in sorted(tables) or [""])
        owner = Owner((f"unknown request {name}",))
        return cls(Request(name, owner, scopes, 0), name, order, since_ms, unknown=True)


class Blocker(NamedTuple):
    """An earlier request that blocks another one.

    :param queued: the conflicting earlier request.
    :param theirs: its scope.
    :param ours: the scope of the blocked request.
    """

    queued: QueuedRequest
    theirs: Scope
    ours: Scope

    def __str__(self) -> str:
        """Describe it: owner, scope, and since when by the lock service's clock."""
        request, since_ms = self.queued.request, self.queued.since_ms
        if self.queued.unknown:
            return (
                f"{request.owner}, which this release cannot read (wait until the other release's "
                "writers end; remove a foreign node with `airflow hudi leases release`)"
            )
        apart = f" of {self.theirs.table}" if self.theirs.table != request.tables[0] else ""
        since = spell_time(since_ms)
        return f"{request.owner} ({self.theirs.mode}, {self.theirs.extent}{apart}, since {since})"


def blockers(mine: QueuedRequest, queue: Iterable[QueuedRequest]) -> tuple[Blocker, ...]:
    """Return what blocks a request, earliest first; without blockers it is held."""
    earlier = (queued for queued in queue if queued.order < mine.order and not _is_covered(mine, queued))
    conflicts = (_conflict(mine, queued) for queued in earlier)
    return tuple(sorted(filter(None, conflicts), key=lambda blocker: blocker.queued.order))


def all_hold(queued: Collection[QueuedRequest]) -> bool:
    """Whether none of some requests is blocked by another one of them."""
    return not any(blockers(request, queued) for request in queued)


def conflicting(scope: Scope, queue: Iterable[QueuedRequest]) -> tuple[Blocker, ...]:
    """Return the requests that conflict with a scope, earliest first."""
    conflicts = [
        Blocker(queued, theirs, scope)
        for queued in queue
        for theirs in queued.request.scopes
        if scope.conflicts_with(theirs)
    ]
    return tuple(sorted(conflicts, key=lambda blocker: blocker.queued.order))


def digest(text: str) -> str:
    """Return the short hash of a table or run in request names; not unique."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _is_covered(mine: QueuedRequest, earlier: QueuedRequest) -> bool:
    # By position, not by owner: a request of the same run that was queued independently of the lease
    # would be held concurrently with the next request that the lease covers.
    return mine.order[: len(earlier.order)] == earlier.order


def _conflict(mine: QueuedRequest, earlier: QueuedRequest) -> Blocker | None:
    for ours in mine.request.scopes:
        for theirs in earlier.request.scopes:
            if ours.conflicts_with(theirs):
                return Blocker(earlier, theirs, ours)
    return None


def _may_be_one(table: str, other: str) -> bool:
    if table == other:
        return True
    return any(
        unreadable.startswith(UNKNOWN) and unreadable[len(UNKNOWN) :] in ("", digest(readable))
        for unreadable, readable in ((table, other), (other, table))
    )


def _parents(path: str) -> Iterator[str]:
    while path:
        path = posixpath.dirname(path)
        yield path


def _reaches(over: tuple[str, ...], below: tuple[str, ...]) -> bool:
    wide = set(over)
    return any(path in wide or not wide.isdisjoint(_parents(path)) for path in below)


def covering_lease(request: Request, queue: Iterable[QueuedRequest]) -> QueuedRequest | None:
    """Return the lease of the request's own run that covers it, if there is one.

    :raises LeaseRefusedError: if none covers it, or a later one conflicts with it: waiting while
        holding could deadlock.
    """
    of_run = [queued for queued in queue if request.owner.is_within(queued.request.owner)]
    for queued in sorted(of_run, key=lambda queued: queued.order, reverse=True):
        if all(any(held.covers(scope) for held in queued.request.scopes) for scope in request.scopes):
            return queued
        if any(held.conflicts_with(scope) for held in queued.request.scopes for scope in request.scopes):
            break
    if not of_run:
        return None
    leased = "; ".join(str(scope) for queued in of_run for scope in queued.request.scopes)
    raise LeaseRefusedError(
        f"{request.owner} requests {'; '.join(map(str, request.scopes))}, but {of_run[0].request.owner} "
        f"already has a lease, on {leased}",
        remedy="name every table and partition in that one lease; a second lease of the run could "
        "deadlock with the first",
    )


def refuse_older(request: Request, queue: Iterable[QueuedRequest]) -> None:
    """Refuse a request if a later try of its owner is queued."""
    for queued in queue:
        theirs = queued.request
        is_own = theirs.id in (request.id, *request.supersedes)
        if is_own and theirs.incarnation > request.incarnation:
            raise LeaseRefusedError(
                f"{request.owner}: try {request.incarnation} requests a lease, but try "
                f"{theirs.incarnation} is queued",
                remedy="no action: the later try does the work",
            )


def missed_run_lease(mine: QueuedRequest, queue: Iterable[QueuedRequest]) -> bool:
    """Return whether a request was created before it saw its run's earlier lease.

    Two requests that are created at the same time do not see each other before both are queued. The
    later one must then be withdrawn: it could be blocked by a request that the earlier one blocks.
    """
    owner = mine.request.owner
    return len(mine.order) == 1 and any(
        queued.token < mine.token
        and owner.is_within(queued.request.owner)
        and owner != queued.request.owner
        for queued in queue
    )
