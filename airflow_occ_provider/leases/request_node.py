"""Pure: a request as a node of the store, its name and its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.errors import ConfigurationError, LeaseRefusedError
from airflow_occ_provider.leases.nodes import Node
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope, Standing

_FORMAT = 1
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Content:
    """What a request's node says.

    :param request: what was asked.
    :param epoch: how often it was taken over, from 1.
    :param term_ms: milliseconds for which the node may stand unrenewed now.
    :param mark: of the process that took it over last.
    """

    request: Request
    epoch: int
    term_ms: int
    mark: str = ""

    def encode(self) -> bytes:
        """Return it as JSON.

        :raises ConfigurationError: if it is too long for a node.
        """
        request = self.request
        scopes = [[scope.table, scope.mode, scope.partitions] for scope in request.scopes]
        values = {
            "format": _FORMAT,
            "id": request.id,
            "owner": request.owner.path,
            "label": request.owner.label,
            "scopes": scopes,
            "ttl_ms": request.ttl_ms,
            "epoch": self.epoch,
            "term_ms": self.term_ms,
            "mark": self.mark,
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
        except (ValueError, KeyError, TypeError) as error:
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
        owner = Owner(tuple(values["owner"]), values["label"])
        request = Request(values["id"], owner, scopes, values["ttl_ms"])
        return cls(request, values["epoch"], values["term_ms"], values["mark"])


def name_of(request: Request, nonce: str, under: tuple[int, ...] = ()) -> str:
    """Return a name for a request's node: it tells whom it may concern, without being read.

    :param request: what is asked.
    :param nonce: so that no name ever comes again, with another place in line.
    :param under: the order of the lease that it passes under.
    """
    order = ".".join(f"{token:x}" for token in under)
    return "~".join((_run_of(request), ".".join(_tables_of(request)), f"{request.id}.{nonce}", order))


def concern(request: Request, names: Iterable[str]) -> list[str]:
    """Return the names of those whose tables or run may be the request's."""
    run, mine = _run_of(request), set(_tables_of(request))
    return [name for name in names if _run(name) == run or mine & _tables(name)]


def about(table: str, names: Iterable[str]) -> list[str]:
    """Return the names of those that may be about a table."""
    return [name for name in names if _hash(table) in _tables(name)]


def under(name: str) -> tuple[int, ...]:
    """Return the order of the lease that a request passes under, empty for none."""
    order = name.rpartition("~")[2]
    return tuple(int(token, 16) for token in order.split(".")) if order else ()


def order(name: str, token: int) -> tuple[int, ...]:
    """Return a request's place among all: the tokens of the leases it passes under, and its own."""
    return (*under(name), token)


def standing(name: str, node: Node) -> Standing:
    """Return the request that a node holds.

    :raises LeaseRefusedError: if it is none of a known format: who it is for cannot be told.
    """
    request = Content.decode(node.data, name).request
    return Standing(request, name, order(name, node.token), node.created_ms)


def _run_of(request: Request) -> str:
    return _hash("/".join(request.owner.path[:2]))


def _tables_of(request: Request) -> list[str]:
    return sorted(map(_hash, request.tables))


def _run(name: str) -> str:
    return name.partition("~")[0]


def _tables(name: str) -> set[str]:
    return set(name.split("~")[1].split(".")) if name.count("~") == 3 else set()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
