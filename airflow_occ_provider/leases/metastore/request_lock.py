"""Pure: requests as locks of the metastore, and the queue that these locks form.

The lock of a request has components for its scopes, and components that hold the request itself:
those are shared and conflict with nothing. Each adoption of the request has a further lock with a name
of its own::

    t_<table>              exclusive or shared: the whole table
    t_<table>/path=<hash>  exclusive: a partition; shared: a parent of one
    request/p<n>=<text>    shared: the request, in pieces
    e_<lock>/epoch=<n>     shared: an adoption; of two in one epoch the earlier one counts

Hive 4 accepts only partitions of the form ``column=value``, and folds the case of all names
(``TxnUtils.normalizePartitionCase``).
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from airflow_occ_provider.errors import ConfigurationError, LeaseRefusedError
from airflow_occ_provider.leases.metastore.locks import Part, Row
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Blocker, Owner, QueuedRequest, Request, Scope

_REQUEST = "request"
# Hive's lock tables hold 767 characters of a partition name, 128 of a table or user name.
_PIECE_CHARS = 700
_MAX_PIECES = 100
# A metastore needs seconds for a thousand names, and Oracle allows no more in one query. The rules
# decide what is held, so only foreign locks are missed by a request for more partitions.
_MAX_PARTITIONS = 300
_MAX_USER_CHARS = 120
_MAX_MARK_CHARS = 110  # 128 of an agent, with the incarnation
_EPOCH_TABLE, _EPOCH = re.compile(r"e_(\d+)"), re.compile(r"epoch=(\d+)")


class Epoch(NamedTuple):
    """One adoption of a request.

    :param number: from 1; the first has a lock only if another lease covers the request.
    """

    number: int
    lock_id: int
    agent: str


@dataclass(frozen=True, slots=True)
class RequestLock:
    """A queued request as a lock, with its adoptions.

    :param asked_by: ``agent`` of the process that made the request.
    :param epochs: its adoptions, the current one last.
    """

    queued: QueuedRequest
    asked_by: str
    epochs: tuple[Epoch, ...] = ()

    @property
    def epoch(self) -> int:
        """The number of the current epoch, from 1."""
        return self.epochs[-1].number if self.epochs else 1

    @property
    def mark(self) -> str:
        """The mark of the process that adopted it last."""
        agent = _agent(self.epochs, self.asked_by)
        mark, _, incarnation = agent.rpartition(".")
        return mark if mark and incarnation.isdecimal() else agent


@dataclass(frozen=True)
class QueueSnapshot:
    """The queue at one moment: requests by the ids of their locks, and foreign locks."""

    locks: dict[int, RequestLock]
    foreign: tuple[Row, ...]

    @property
    def requests(self) -> tuple[QueuedRequest, ...]:
        """The requests, earliest first."""
        return tuple(sorted((one.queued for one in self.locks.values()), key=lambda one: one.order))

    def foreign_blockers(self, mine: QueuedRequest) -> tuple[Blocker, ...]:
        """Return the foreign locks that block a request."""
        return tuple(
            Blocker(_foreign(row, scope), scope, scope)
            for scope in mine.request.scopes
            for row in self.foreign
            if row.lock_id < mine.token
            and row.part.table in {"", _REQUEST, table_name(scope.table, mine.order[:-1])}
        )


def parts(asked: Request, since_ms: int, under: tuple[int, ...] = ()) -> list[Part]:
    """Return the components of a request's lock.

    :raises ConfigurationError: if it is too long.
    """
    content = Content(asked, 1, asked.ttl_ms).encode()
    head = f"{'.'.join(map(str, under))} {since_ms} ".encode()
    # In lower case: some releases of Hive fold case.
    text = base64.b32encode(zlib.compress(head + content, 9)).decode().rstrip("=").lower()
    pieces = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]
    if len(pieces) > _MAX_PIECES:
        raise ConfigurationError(
            "scope",
            f"{len(content)} bytes are too many for one request",
            remedy="name parent partitions, or the whole table",
        )
    labels = [
        Part(_REQUEST, f"p{number:03}={piece}", exclusive=False) for number, piece in enumerate(pieces)
    ]
    if sum(len(scope.partitions or ()) for scope in asked.scopes) > _MAX_PARTITIONS:
        return labels
    names = (part for scope in asked.scopes for part in _of_scope(scope, under))
    return [*dict.fromkeys(names), *labels]


def agent(mark: str, incarnation: int) -> str:
    """Return the ``agentInfo`` of a process that makes or adopts a request."""
    return f"{mark[:_MAX_MARK_CHARS]}.{incarnation}"


def epoch_part(lock_id: int, epoch: int) -> Part:
    """Return the component of an epoch's lock."""
    return Part(epoch_table(lock_id), f"epoch={epoch}", exclusive=False)


def epoch_table(lock_id: int) -> str:
    """Return the table name of a request's epoch locks."""
    return f"e_{lock_id}"


def lock_user(owner: Owner) -> str:
    """Return an owner as the lock's user, for display in the metastore."""
    return re.sub(r"[^A-Za-z0-9_.:/+-]", "_", "/".join((*owner.path, owner.label)).strip("/"))[
        :_MAX_USER_CHARS
    ]


def name(lock_id: int, under: tuple[int, ...]) -> str:
    """Return the name of a request: its lock id and the order of its covering lease."""
    return f"{lock_id}~{'.'.join(f'{token:x}' for token in under)}"


def read(rows: Iterable[Row]) -> QueueSnapshot:
    """Return the queue that some locks form.

    :param rows: of all locks. A request that this release cannot read blocks all others.
    """
    labels: dict[int, list[Row]] = {}
    of_epochs: dict[int, list[Row]] = {}
    others = []
    for row in rows:
        if row.part.table == _REQUEST and row.part.partition:
            labels.setdefault(row.lock_id, []).append(row)
        elif taken := _EPOCH_TABLE.fullmatch(row.part.table):
            of_epochs.setdefault(int(taken[1]), []).append(row)
        else:
            others.append(row)
    locks = {one: _request_lock(one, pieces, of_epochs.get(one, ())) for one, pieces in labels.items()}
    return QueueSnapshot(locks, tuple(row for row in others if row.lock_id not in labels))


def epochs(rows: Iterable[Row]) -> tuple[Epoch, ...]:
    """Return the epochs of a request, the current one last.

    Of several locks with the same number the earliest counts. A number is free again once the next
    epoch has begun.
    """
    named = ((_EPOCH.fullmatch(row.part.partition), row) for row in rows)
    found = [Epoch(int(number[1]), row.lock_id, row.agent) for number, row in named if number]
    return tuple(sorted(found, key=lambda one: (one.number, -one.lock_id)))


def table_name(table: str, under: tuple[int, ...] = ()) -> str:
    """Return the name of a table in the lease database, also under a covering lease."""
    return "_".join(("t", hashlib.sha256(table.encode()).hexdigest()[:16], *map(str, under)))


def _of_scope(scope: Scope, under: tuple[int, ...]) -> Iterator[Part]:
    table, is_alone = table_name(scope.table, under), scope.mode == "exclusive"
    if scope.partitions is None:
        yield Part(table, "", is_alone)
        return
    above: set[str] = set()
    for path in scope.partitions:
        yield Part(table, _path(path), exclusive=True)
        while path := posixpath.dirname(path):
            above.add(path)
    yield from (Part(table, _path(path), exclusive=False) for path in sorted(above))


def _path(path: str) -> str:
    # Hashed: a partition name may be too long, or have characters that break Hive's own SQL.
    return f"path={hashlib.sha256(path.encode()).hexdigest()[:32]}"


def _foreign(row: Row, scope: Scope) -> QueuedRequest:
    asked = Request(f"lock {row.lock_id}", Owner((row.owner, row.agent)), (scope,), 0)
    return QueuedRequest(asked, str(row.lock_id), (row.lock_id,), row.since_ms)


def _request_lock(lock_id: int, pieces: list[Row], of_epochs: Iterable[Row]) -> RequestLock:
    text = "".join(part.partition("=")[2] for part in sorted(row.part.partition for row in pieces))
    asked_by, taken = pieces[0].agent, epochs(of_epochs)
    renewed_ms = max(row.since_ms for row in pieces)
    try:
        packed = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
        under_text, since_ms, content = zlib.decompress(packed).split(b" ", 2)
        under = tuple(int(token) for token in under_text.split(b".") if token)
        since = int(since_ms)
        called = name(lock_id, under)
        request = Content.decode(content, called).request
    except (ValueError, zlib.error, LeaseRefusedError):
        # An unknown lease may cover it, so it is placed before all others.
        order = (0, lock_id)
        queued = QueuedRequest.unreadable(f"lock {lock_id}", order, since_ms=pieces[0].since_ms)
        return RequestLock(queued, asked_by, taken)
    _, dot, number = _agent(taken, asked_by).rpartition(".")
    if dot and number.isdecimal():
        request = replace(request, incarnation=max(request.incarnation, int(number)))
    queued = QueuedRequest(
        request,
        called,
        (*under, lock_id),
        since,
        renewed_ms=renewed_ms,
        term_ms=request.ttl_ms,
    )
    return RequestLock(queued, asked_by, taken)


def _agent(taken: Sequence[Epoch], asked_by: str) -> str:
    return taken[-1].agent if taken else asked_by
