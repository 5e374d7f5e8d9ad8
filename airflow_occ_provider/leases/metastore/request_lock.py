"""Pure: a request as a lock of the metastore, and the line as the metastore shows it.

The lock of a request is on the names of its scopes, and on parts that hold what was asked: those
are shared, and conflict with nothing. Further locks, one for each time that a process took the
request over, are on names of their own::

    t_<table>              exclusive or shared: the whole table
    t_<table>/path=<hash>  exclusive: a partition; shared: what lies above one
    request/p<n>=<text>    shared: what was asked, in pieces
    e_<lock>/epoch=<n>     shared: who took it over; of two in one epoch the elder

Hive 4 takes no partition that is not ``column=value``, and folds the case of all names
(``TxnUtils.normalizePartitionCase``).
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from airflow_occ_provider.errors import ConfigurationError, LeaseRefusedError
from airflow_occ_provider.leases.metastore.locks import Part, Row
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Blocker, Owner, Request, Scope, Standing

_REQUEST = "request"
# Hive's lock tables hold 767 characters of a partition's name, 128 of a table's and of an owner's.
_PIECE = 700
_MOST_PIECES = 100
# A metastore takes seconds over a thousand names, and Oracle no more in one query. Who holds is told
# by the rules, so only a stranger's lock by hand is overlooked by who names more partitions.
_MOST_NAMED = 300
_MOST_WHO = 120
_EPOCH_TABLE, _EPOCH = re.compile(r"e_(\d+)"), re.compile(r"epoch=(\d+)")


class Epoch(NamedTuple):
    """One time that a process took a request over.

    :param number: from 1; the first one has a lock only below another lease.
    :param lock_id: of the lock that says so.
    :param agent: of the process.
    """

    number: int
    lock_id: int
    agent: str


@dataclass(frozen=True, slots=True)
class Seat:
    """A request that stands in line, and who took it over.

    :param standing: the request, and its place.
    :param asked_by: ``agent`` of the process that asked.
    :param epochs: the one that is valid last.
    """

    standing: Standing
    asked_by: str
    epochs: tuple[Epoch, ...] = ()

    @property
    def epoch(self) -> int:
        """How often it was taken over, from 1."""
        return self.epochs[-1].number if self.epochs else 1

    @property
    def mark(self) -> str:
        """Of the process that took it over last."""
        return _agent(self.epochs, self.asked_by).partition(".")[0]


@dataclass(frozen=True)
class Look:
    """Everybody who stands in line at one moment.

    :param seats: by the id of their lock.
    :param foreign: parts of locks that are no requests.
    """

    seats: dict[int, Seat] = field(default_factory=dict)
    foreign: tuple[Row, ...] = ()

    @property
    def line(self) -> tuple[Standing, ...]:
        """The requests, eldest first."""
        return tuple(sorted((one.standing for one in self.seats.values()), key=lambda one: one.order))

    def strangers(self, mine: Standing) -> tuple[Blocker, ...]:
        """Return whose locks came before a request, on its names, and are no requests."""
        return tuple(
            Blocker(_stranger(row, scope), scope, scope)
            for scope in mine.request.scopes
            for row in self.foreign
            if row.lock_id < mine.token
            and row.part.table in {"", _REQUEST, table_name(scope.table, mine.order[:-1])}
        )


def parts(asked: Request, since_ms: int, under: tuple[int, ...] = ()) -> list[Part]:
    """Return what the lock of a request is on.

    :param asked: the request.
    :param since_ms: epoch milliseconds, for people.
    :param under: the order of the lease that it passes under.
    :raises ConfigurationError: if it is too long.
    """
    content = Content(asked, 1, asked.ttl_ms).encode()
    head = f"{'.'.join(map(str, under))} {since_ms} ".encode()
    # In small letters: some releases of Hive fold case.
    text = base64.b32encode(zlib.compress(head + content, 9)).decode().rstrip("=").lower()
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    if len(pieces) > _MOST_PIECES:
        raise ConfigurationError(
            "scope",
            f"{len(content)} bytes are too many for one request",
            remedy="name partitions above them, or the whole table",
        )
    labels = [
        Part(_REQUEST, f"p{number:03}={piece}", alone=False) for number, piece in enumerate(pieces)
    ]
    if sum(len(scope.partitions or ()) for scope in asked.scopes) > _MOST_NAMED:
        return labels
    names = (part for scope in asked.scopes for part in _of_scope(scope, under))
    return [*dict.fromkeys(names), *labels]


def agent(mark: str, incarnation: int) -> str:
    """Return what a process that asks for a request, or takes one over, calls itself.

    :param mark: of the process.
    :param incarnation: of the request.
    """
    return f"{mark}.{incarnation}"


def epoch_part(lock_id: int, epoch: int) -> Part:
    """Return what the lock of an epoch is on."""
    return Part(epoch_table(lock_id), f"epoch={epoch}", alone=False)


def epoch_table(lock_id: int) -> str:
    """Return the name under which the epochs of a request stand."""
    return f"e_{lock_id}"


def who(owner: Owner) -> str:
    """Return an owner as the metastore may be told, for those who look at its locks."""
    return re.sub(r"[^A-Za-z0-9_.:/+-]", "_", "/".join((*owner.path, owner.label)).strip("/"))[
        :_MOST_WHO
    ]


def name(lock_id: int, under: tuple[int, ...]) -> str:
    """Return what a request is called: its lock, and the order of the lease that it passes under."""
    return f"{lock_id}~{'.'.join(f'{token:x}' for token in under)}"


def read(rows: Iterable[Row]) -> Look:
    """Return everybody who stands in line.

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
    seats = {one: _seat(one, pieces, of_epochs.get(one, ())) for one, pieces in labels.items()}
    return Look(seats, tuple(row for row in others if row.lock_id not in labels))


def epochs(rows: Iterable[Row]) -> tuple[Epoch, ...]:
    """Return the epochs of a request, the one that is valid last.

    Among those who took the same one it is the first: the others find it before theirs. A name is
    free again when the epoch after it has begun.

    :param rows: under its ``epoch_table``.
    """
    named = ((_EPOCH.fullmatch(row.part.partition), row) for row in rows)
    found = [Epoch(int(number[1]), row.lock_id, row.agent) for number, row in named if number]
    return tuple(sorted(found, key=lambda one: (one.number, -one.lock_id)))


def table_name(table: str, under: tuple[int, ...] = ()) -> str:
    """Return the name that stands for a table, or for it below a lease.

    :param table: canonical base path.
    :param under: the order of the lease.
    """
    return "_".join(("t", hashlib.sha256(table.encode()).hexdigest()[:16], *map(str, under)))


def _of_scope(scope: Scope, under: tuple[int, ...]) -> Iterator[Part]:
    table, is_alone = table_name(scope.table, under), scope.mode == "exclusive"
    if scope.partitions is None:
        yield Part(table, "", is_alone)
        return
    above: set[str] = set()
    for path in scope.partitions:
        yield Part(table, _path(path), alone=True)
        while path := posixpath.dirname(path):
            above.add(path)
    yield from (Part(table, _path(path), alone=False) for path in sorted(above))


def _path(path: str) -> str:
    # Hashed: a partition's name may hold what Hive's own SQL trips over, and be too long.
    return f"path={hashlib.sha256(path.encode()).hexdigest()[:32]}"


def _stranger(row: Row, scope: Scope) -> Standing:
    asked = Request(f"lock {row.lock_id}", Owner((row.who, row.agent)), (scope,), 0)
    return Standing(asked, str(row.lock_id), (row.lock_id,), row.since_ms)


def _seat(lock_id: int, pieces: list[Row], of_epochs: Iterable[Row]) -> Seat:
    text = "".join(part.partition("=")[2] for part in sorted(row.part.partition for row in pieces))
    asked_by, taken = pieces[0].agent, epochs(of_epochs)
    try:
        packed = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
        under_text, since_ms, content = zlib.decompress(packed).split(b" ", 2)
        under = tuple(int(token) for token in under_text.split(b".") if token)
        since = int(since_ms)
        called = name(lock_id, under)
        request = Content.decode(content, called).request
    except (ValueError, zlib.error, LeaseRefusedError):
        # Its place may be under a lease that cannot be told: before all others.
        place = (0, lock_id)
        standing = Standing.of_unknown(f"lock {lock_id}", place, since_ms=pieces[0].since_ms)
        return Seat(standing, asked_by, taken)
    incarnation = max(request.incarnation, _incarnation(_agent(taken, asked_by)))
    request = replace(request, incarnation=incarnation)
    return Seat(Standing(request, called, (*under, lock_id), since), asked_by, taken)


def _agent(taken: Sequence[Epoch], asked_by: str) -> str:
    return taken[-1].agent if taken else asked_by


def _incarnation(agent: str) -> int:
    number = agent.rpartition(".")[2] if "." in agent else ""
    return int(number) if number.isdecimal() else 0
