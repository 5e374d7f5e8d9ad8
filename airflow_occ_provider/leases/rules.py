"""Pure: who stands in line for a table, who waits for whom, and why.

::

    request --> waits for every conflicting elder --> holds --> is deleted, by its owner or as dead

Elder is who came first, by the order in which the lock service created the requests. A request
conflicts with another where their scopes overlap and not both are shared. Who conflicts with no
elder holds, and goes on holding: nobody comes in before an elder, but a task that passes under the
lease of its own run.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.leases.digest import digest

_NAMED = 10
UNKNOWN = "?"
"""Begin of a table's name that this release cannot read; alone it stands for every table."""


class Mode(StrEnum):
    """How a scope is written.

    ``SHARED``: optimistically, beside others whose scope is as unknown. ``EXCLUSIVE``: alone.
    """

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a writer may touch of one table.

    :param table: the table's canonical base path.
    :param mode: how it is written. A shared scope is the whole table, as nobody knows more.
    :param partitions: partition paths, each with all below it; ``None`` for the whole table.
    """

    table: str
    mode: Mode = Mode.EXCLUSIVE
    partitions: tuple[str, ...] | None = None

    @classmethod
    def of(cls, table: str, partitions: Iterable[str] | None, mode: Mode = Mode.EXCLUSIVE) -> Scope:
        """Return a scope whose partitions are sorted, and none of which lies in another.

        :param table: the table's canonical base path.
        :param partitions: partition paths; ``None``, or the path of an unpartitioned table, for all.
        :param mode: how it is written.
        """
        if partitions is None or mode is Mode.SHARED:
            return cls(table, mode)
        paths = {path.strip("/") for path in partitions}
        kept = sorted(path for path in paths if not paths.intersection(_parents(path)))
        return cls(table, mode, None if "" in paths else tuple(kept))

    def conflicts_with(self, other: Scope) -> bool:
        """Whether both may not write at once."""
        if not _may_be_one(self.table, other.table) or self.mode is other.mode is Mode.SHARED:
            return False
        if self.partitions is None or other.partitions is None:
            return True
        return _reaches(self.partitions, other.partitions) or _reaches(other.partitions, self.partitions)

    def covers(self, other: Scope) -> bool:
        """Whether who holds this one needs nothing more for the other."""
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
        """Its partitions for people, the first ones of many."""
        if self.partitions is None:
            return "the whole table"
        more = len(self.partitions) - _NAMED
        return ", ".join(self.partitions[:_NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who asks.

    :param path: from the DAG down, such as ``(dag, run)`` or ``(dag, run, task, map index)``. A
        request passes under one whose path is the begin of its own.
    :param label: tells requests of one path apart: the task that asked for its run.
    :param site: the Airflow deployment: two of them may run the same DAG and run id. Empty in requests
        of earlier releases of this provider.
    """

    path: tuple[str, ...]
    label: str = ""
    site: str = ""

    def is_within(self, other: Owner) -> bool:
        """Whether it is the other, or below it."""
        return self.site == other.site and self.path[: len(other.path)] == other.path

    def is_of_run(self, other: Owner) -> bool:
        """Whether both are of one DAG run."""
        return self.site == other.site and self.path[:2] == other.path[:2]

    def __str__(self) -> str:
        named = " / ".join((*self.path, f"by {self.label}") if self.label else self.path)
        return f"{named} (site {self.site})" if self.site else named


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks for: everything that it needs at once, so that nobody waits while holding.

    :param id: chosen by who asks; asking again with it finds the first request.
    :param owner: who asks.
    :param scopes: what he wants to write.
    :param ttl_ms: milliseconds without a renewal after which others take him for dead.
    :param incarnation: rises with every try of the owner; an older try is refused.
    :param supersedes: ids of the owner's earlier requests, which are given up.
    """

    id: str
    owner: Owner
    scopes: tuple[Scope, ...]
    ttl_ms: int
    incarnation: int = 0
    supersedes: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables it is about, each once."""
        return tuple(dict.fromkeys(scope.table for scope in self.scopes))


@dataclass(frozen=True, slots=True)
class Standing:
    """A request that stands in line.

    :param request: what was asked.
    :param name: what the lock service calls it.
    :param order: its place among all: the order token, after those of the leases it passes under.
    :param since_ms: epoch milliseconds by the lock service's clock at which it came; for people.
    :param unknown: whether this release cannot read it. It blocks, and is never removed as dead.
    """

    request: Request
    name: str
    order: tuple[int, ...]
    since_ms: int = 0
    unknown: bool = False

    @property
    def token(self) -> int:
        """The order token: greater than that of everybody who came before."""
        return self.order[-1]

    @classmethod
    def of_unknown(
        cls, name: str, order: tuple[int, ...], tables: Iterable[str] = (), since_ms: int = 0
    ) -> Standing:
        """Return a request that this release cannot read: it waits for nothing and excludes all.

        :param name: what the lock service calls it.
        :param order: its place, ``(0,)`` if that is unknown too: before all others.
        :param tables: digests of the tables that it is about, none for every table.
        :param since_ms: epoch milliseconds by the lock service's clock at which it came.
        """
        scopes = tuple(Scope(f"{UNKNOWN}{one}") for one in sorted(tables) or [""])
        owner = Owner((f"unknown request {name}",))
        return cls(Request(name, owner, scopes, 0), name, order, since_ms, unknown=True)


class Blocker(NamedTuple):
    """Why a request has to wait.

    :param standing: the conflicting elder.
    :param theirs: its scope.
    :param ours: the scope of the request that waits.
    """

    standing: Standing
    theirs: Scope
    ours: Scope


def blockers(mine: Standing, line: Iterable[Standing]) -> tuple[Blocker, ...]:
    """Return the conflicting elders of a request, eldest first; it holds where there are none.

    :param mine: the request.
    :param line: everybody who stands in line, in any order.
    """
    elders = (one for one in line if one.order < mine.order and not _passes(mine, one))
    found = (_conflict(mine, elder) for elder in elders)
    return tuple(sorted(filter(None, found), key=lambda one: one.standing.order))


def conflicting(scope: Scope, line: Iterable[Standing]) -> tuple[Blocker, ...]:
    """Return everybody in line who could not write beside a scope, eldest first.

    :param scope: what is looked at.
    :param line: everybody who stands in line, in any order.
    """
    found = [
        Blocker(one, theirs, scope)
        for one in line
        for theirs in one.request.scopes
        if scope.conflicts_with(theirs)
    ]
    return tuple(sorted(found, key=lambda one: one.standing.order))


def _passes(mine: Standing, elder: Standing) -> bool:
    # By its place, not by its owner: who came in beside a lease of its run, and not under it, would
    # hold beside the next one who comes in under it.
    return mine.order[: len(elder.order)] == elder.order


def _conflict(mine: Standing, elder: Standing) -> Blocker | None:
    for ours in mine.request.scopes:
        for theirs in elder.request.scopes:
            if ours.conflicts_with(theirs):
                return Blocker(elder, theirs, ours)
    return None


def _may_be_one(table: str, other: str) -> bool:
    if table == other:
        return True
    return any(
        unknown.startswith(UNKNOWN) and unknown[len(UNKNOWN) :] in ("", digest(known))
        for unknown, known in ((table, other), (other, table))
    )


def _parents(path: str) -> Iterator[str]:
    while path:
        path = posixpath.dirname(path)
        yield path


def _reaches(over: tuple[str, ...], below: tuple[str, ...]) -> bool:
    wide = set(over)
    return any(path in wide or not wide.isdisjoint(_parents(path)) for path in below)
