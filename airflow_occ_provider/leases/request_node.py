"""Pure: a request as a node of the store, its name and its content.

Two releases of this provider may share a queue, so every node states what an older release must know
to wait for it: the name keeps its four parts, the content its fields of ``_FORMAT``. A release adds
fields, raises ``_VERSION``, and keeps the fields that it does not know when it rewrites a node. Only
what older releases would misread gets another ``_FORMAT``: it blocks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_occ_provider.errors import ConfigurationError, LeaseRefusedError
from airflow_occ_provider.leases.digest import digest
from airflow_occ_provider.leases.nodes import Node
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope, Standing

_FORMAT = 1
_VERSION = 2
_MOST_BYTES = 256 * 1024
_PARSED = 65_536
_FIELDS = frozenset(
    {"format", "version", "id", "owner", "label", "site", "scopes", "ttl_ms", "incarnation"}
    | {"epoch", "term_ms", "mark"}
)
_UNPLACED = (0,)


class Name(NamedTuple):
    """What a node's name states.

    :param run: digest of the owner's run.
    :param tables: digests of the tables.
    :param key: the request's id and more, apart from other names.
    :param under: the order of the lease that it passes under.
    """

    run: str
    tables: frozenset[str]
    key: str
    under: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """What a request's node says.

    :param request: what was asked.
    :param epoch: how often it was taken over, from 1.
    :param term_ms: milliseconds for which the node may stand unrenewed now.
    :param mark: of the process that took it over last.
    :param others: the fields that this release does not know.
    """

    request: Request
    epoch: int
    term_ms: int
    mark: str = ""
    others: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return it as JSON.

        :raises ConfigurationError: if it is too long for a node.
        """
        request, owner = self.request, self.request.owner
        scopes = [[scope.table, scope.mode, scope.partitions] for scope in request.scopes]
        values = {
            "format": _FORMAT,
            "version": _VERSION,
            "id": request.id,
            # With the site, so that an earlier release takes no request of another site for its own.
            "owner": (owner.site, *owner.path) if owner.site else owner.path,
            "label": owner.label,
            "site": owner.site,
            "scopes": scopes,
            "ttl_ms": request.ttl_ms,
            "incarnation": request.incarnation,
            "epoch": self.epoch,
            "term_ms": self.term_ms,
            "mark": self.mark,
            **self.others,
        }
        data = json.dumps(values, separators=(",", ":")).encode()
        if len(data) > _MOST_BYTES:
            count = sum(len(scope.partitions or ()) for scope in request.scopes)
            raise ConfigurationError(
                "scope",
                f"{count} partitions are too many for one request",
                remedy="name partitions above them, or the whole table",
            )
        return data

    @classmethod
    def decode(cls, data: bytes, name: str) -> Content:
        """Read ``encode`` back.

        :param name: of the node.
        :raises LeaseRefusedError: if it is of another release, or no request.
        """
        try:
            return cls._of(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LeaseRefusedError(
                f"request {name} in the line cannot be understood: {error}",
                remedy="let the writers of the other release end, or give each its own lease root; if "
                "its owner is gone, delete that node below the lease root's requests",
            ) from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Content:
        if values["format"] != _FORMAT:
            raise ValueError(f"it has the format {values['format']}, known is {_FORMAT}")
        scopes = tuple(
            Scope(table, Mode(mode), None if partitions is None else tuple(partitions))
            for table, mode, partitions in values["scopes"]
        )
        site, path = values.get("site", ""), tuple(values["owner"])
        owner = Owner(path[1:] if site else path, values["label"], site)
        request = Request(
            values["id"], owner, scopes, values["ttl_ms"], incarnation=values.get("incarnation", 0)
        )
        # The version stays that of the youngest release that wrote it.
        others = {name: kept for name, kept in values.items() if name not in _FIELDS}
        if values.get("version", 0) > _VERSION:
            others["version"] = values["version"]
        return cls(request, values["epoch"], values["term_ms"], values["mark"], others)


def name_of(request: Request, nonce: str, under: tuple[int, ...] = ()) -> str:
    """Return a name for a request's node: it tells whom it may concern, without being read.

    :param request: what is asked.
    :param nonce: so that no name ever comes again, with another place in line.
    :param under: the order of the lease that it passes under.
    """
    order = ".".join(f"{token:x}" for token in under)
    run, tables = _run_of(request.owner), ".".join(sorted(map(digest, request.tables)))
    return "~".join((run, tables, f"{request.id}.{nonce}", order))


@lru_cache(_PARSED)
def parse(name: str) -> Name | None:
    """Return what a node's name states; ``None`` if it is not a name of a known format."""
    try:
        run, tables, key, order = name.split("~")
        tokens = _tokens(order)
    except ValueError:
        return None
    return Name(run, frozenset(tables.split(".")), key, tokens) if tables else None


def about(tables: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names of those that may be about one of some tables; every unknown name may be."""
    digests = frozenset(map(digest, tables))
    return [name for name in names if (known := parse(name)) is None or digests & known.tables]


def akin(request: Request, names: Iterable[str]) -> list[str]:
    """Return the names of those of the request's run, and of its own earlier ones."""
    run, ids = _run_of(request.owner), tuple(f"{one}." for one in (request.id, *request.supersedes))
    return [
        name
        for name in names
        if (known := parse(name)) and (known.run == run or known.key.startswith(ids))
    ]


def of_run(owner: Owner, names: Iterable[str]) -> list[str]:
    """Return the names of those that may be of an owner's run."""
    run = _run_of(owner)
    return [name for name in names if (known := parse(name)) and known.run == run]


def under(name: str) -> tuple[int, ...]:
    """Return the order of the lease that a request passes under, empty for none.

    :param name: of the request, which ends with that order, whatever service it stands in.
    """
    return _tokens(name.rpartition("~")[2])


def order(name: str, token: int) -> tuple[int, ...]:
    """Return a request's place among all: the tokens of the leases it passes under, and its own."""
    return (*under(name), token)


def standing(name: str, node: Node | None) -> Standing:
    """Return the request that a node holds; an unknown one if this release cannot read it.

    :param name: of the node.
    :param node: as it was read; ``None`` for a name that is not of a known format.
    """
    known = parse(name)
    if known is None or node is None:
        return Standing.of_unknown(name, _UNPLACED)
    place = (*known.under, node.token)
    try:
        request = Content.decode(node.data, name).request
    except LeaseRefusedError:
        return Standing.of_unknown(name, place, known.tables, node.created_ms)
    return Standing(request, name, place, node.created_ms)


def _tokens(order: str) -> tuple[int, ...]:
    return tuple(int(token, 16) for token in order.split(".")) if order else ()


def _run_of(owner: Owner) -> str:
    return digest("/".join(owner.path[:2]))
