"""Pure: the name and content of a request's node in the store.

Two releases of this provider may share a queue, so every node states what an older release needs to
wait for it: the name keeps its four parts, the content its fields of ``_FORMAT``. A release that adds
fields raises ``_VERSION``, and keeps unknown fields when it rewrites a node. ``_FORMAT`` changes only
for content that older releases would misread; such a request blocks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_occ_provider.errors import ConfigurationError, LeaseRefusedError
from airflow_occ_provider.leases.rules import Mode, Owner, QueuedRequest, Request, Scope, digest
from airflow_occ_provider.leases.store import Node

_FORMAT = 1
_VERSION = 3
_MAX_BYTES = 256 * 1024
_REVOKED = "released by force by "
_CACHED_NAMES = 65_536
_FIELDS = frozenset(
    {"format", "version", "id", "owner", "label", "site", "scopes", "ttl_ms", "incarnation"}
    | {"epoch", "term_ms", "mark", "instants"}
)
_UNKNOWN_ORDER = (0,)


class Name(NamedTuple):
    """The parts of a node's name.

    :param key: the request's id and a nonce, unique among names.
    :param under: the order of the lease that covers the request.
    """

    run: str
    tables: frozenset[str]
    key: str
    under: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a request's node, also fields that this release does not know.

    :param epoch: number of adoptions, from 1.
    :param term_ms: milliseconds until it expires without a renewal.
    :param instants: requested times of the writes that the owner has announced.
    """

    request: Request
    epoch: int
    term_ms: int
    mark: str = ""
    instants: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the content as JSON.

        :raises ConfigurationError: if it is too long for a node.
        """
        request, owner = self.request, self.request.owner
        scopes = [[scope.table, scope.mode, scope.partitions] for scope in request.scopes]
        values = {
            "format": _FORMAT,
            "version": _VERSION,
            "id": request.id,
            # With the site, so that an earlier release does not take another site's request for its own.
            "owner": (owner.site, *owner.path) if owner.site else owner.path,
            "label": owner.label,
            "site": owner.site,
            "scopes": scopes,
            "ttl_ms": request.ttl_ms,
            "incarnation": request.incarnation,
            "epoch": self.epoch,
            "term_ms": self.term_ms,
            "mark": self.mark,
            "instants": self.instants,
            **self.others,
        }
        data = json.dumps(values, separators=(",", ":")).encode()
        if len(data) > _MAX_BYTES:
            count = sum(len(scope.partitions or ()) for scope in request.scopes)
            raise ConfigurationError(
                "scope",
                f"{count} partitions are too many for one request",
                remedy="name parent partitions, or the whole table",
            )
        return data

    @classmethod
    def decode(cls, data: bytes, name: str) -> Content:
        """Return the content that ``encode`` described.

        :raises LeaseRefusedError: if it has another format, or is not a request.
        """
        try:
            return cls._of(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LeaseRefusedError(
                f"request {name} in the queue cannot be read: {error}",
                remedy="wait until the other release's writers end, or give each release its own lease "
                "root; if the request's owner is gone, delete that node below the lease root's requests",
            ) from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Content:
        if values["format"] != _FORMAT:
            raise ValueError(f"its format {values['format']} is unknown, this release reads {_FORMAT}")
        scopes = tuple(
            Scope(table, Mode(mode), None if partitions is None else tuple(partitions))
            for table, mode, partitions in values["scopes"]
        )
        site, path = values.get("site", ""), tuple(values["owner"])
        owner = Owner(path[1:] if site else path, values["label"], site)
        request = Request(
            values["id"], owner, scopes, values["ttl_ms"], incarnation=values.get("incarnation", 0)
        )
        # The version stays that of the latest release that wrote it.
        others = {name: value for name, value in values.items() if name not in _FIELDS}
        if values.get("version", 0) > _VERSION:
            others["version"] = values["version"]
        instants = tuple(map(str, values.get("instants", ())))
        return cls(request, values["epoch"], values["term_ms"], values["mark"], instants, others)


def name_of(request: Request, nonce: str, under: tuple[int, ...] = ()) -> str:
    """Return a name for a request's node: its run, tables and covering lease.

    The nonce makes it unique, because a reused name would have another position. It is no sequence of
    ZooKeeper's, which has 32 bits: a create whose answer was lost is found by the request's id.
    """
    order = ".".join(f"{token:x}" for token in under)
    run, tables = _run_of(request.owner), ".".join(sorted(map(digest, request.tables)))
    return "~".join((run, tables, f"{request.id}.{nonce}", order))


@lru_cache(_CACHED_NAMES)
def parse(name: str) -> Name | None:
    """Return the parts of a node's name; ``None`` if its format is unknown."""
    try:
        run, tables, key, order = name.split("~")
        tokens = _tokens(order)
    except ValueError:
        return None
    return Name(run, frozenset(tables.split(".")), key, tokens) if tables else None


def names_of_tables(tables: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names that may concern some tables, including every unknown name."""
    digests = frozenset(map(digest, tables))
    return [name for name in names if (parts := parse(name)) is None or digests & parts.tables]


def related_names(request: Request, names: Iterable[str]) -> list[str]:
    """Return the names of requests of the same run and of superseded requests."""
    run = _run_of(request.owner)
    ids = tuple(f"{request_id}." for request_id in (request.id, *request.supersedes))
    return [
        name
        for name in names
        if (parts := parse(name)) and (parts.run == run or parts.key.startswith(ids))
    ]


def names_of_run(owner: Owner, names: Iterable[str]) -> list[str]:
    """Return the names that may belong to an owner's run."""
    run = _run_of(owner)
    return [name for name in names if (parts := parse(name)) and parts.run == run]


def under(name: str) -> tuple[int, ...]:
    """Return the order of the lease that covers a request, the end of its name."""
    return _tokens(name.rpartition("~")[2])


def order(name: str, token: int) -> tuple[int, ...]:
    """Return a request's position: the tokens of its covering leases, then its own."""
    return (*under(name), token)


def queued(name: str, node: Node | None) -> QueuedRequest:
    """Return the request of a node; an unknown one if this release cannot read it."""
    parts = parse(name)
    if parts is None or node is None:
        return QueuedRequest.unreadable(name, _UNKNOWN_ORDER)
    order = (*parts.under, node.token)
    try:
        content = Content.decode(node.data, name)
    except LeaseRefusedError:
        return QueuedRequest.unreadable(name, order, parts.tables, node.created_ms)
    return QueuedRequest(
        content.request,
        name,
        order,
        node.created_ms,
        renewed_ms=node.renewed_ms,
        term_ms=content.term_ms,
        instants=content.instants,
    )


def announced(name: str, node: Node) -> dict[str, Owner]:
    """Return the writes that a node's owner has announced; none if it cannot be read."""
    try:
        content = Content.decode(node.data, name)
    except LeaseRefusedError:
        return {}
    return dict.fromkeys(content.instants, content.request.owner)


def revoked_mark(by: str) -> str:
    """Return the mark of a request that a person releases, for its owner to read.

    :param by: the account, and when.
    """
    return f"{_REVOKED}{by}"


def is_revoked(mark: str) -> bool:
    """Return whether a mark is that of a request that a person releases."""
    return mark.startswith(_REVOKED)


def _tokens(order: str) -> tuple[int, ...]:
    return tuple(int(token, 16) for token in order.split(".")) if order else ()


def _run_of(owner: Owner) -> str:
    return digest("/".join(owner.path[:2]))
