"""Pure: all nodes of a store in one object, which every change replaces.

One object gives one order of all changes, a check of another node with a creation, and a listing by one
request. Its content never repeats, as the revision rises, so that a tag made of the content never does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_occ_provider.leases.store import (
    Node,
    NodeGoneError,
    NodeTakenError,
    NodeVersionError,
    Version,
)

_FORMAT = 2
_REMEMBERED = 64  # writes, so that a client whose answer was lost finds its own


class LedgerFormatError(ValueError):
    """The object is no ledger, or one of another release."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The nodes of a store.

    :param revision: rises with every change; the token of a node is that of its creation.
    :param nodes: by their names.
    :param writes: the marks of the last writes, latest last.
    """

    revision: int
    nodes: Mapping[str, Node] = field(default_factory=dict)
    writes: tuple[str, ...] = ()

    @classmethod
    def empty(cls, now_ns: int) -> Ledger:
        """Return the ledger of a new object.

        It begins at the epoch nanoseconds: no token comes twice if an earlier object was deleted.
        """
        return cls(now_ns)

    @classmethod
    def decode(cls, data: bytes) -> Ledger:
        """Return the ledger that ``encode`` described.

        :raises LedgerFormatError: if it has another format.
        """
        try:
            given: dict[str, Any] = json.loads(data)
            if given["format"] != _FORMAT:
                raise LedgerFormatError(f"its format is {given['format']}, this release reads {_FORMAT}")
            nodes = {
                name: Node(content.encode(errors="surrogateescape"), *numbers)
                for name, (content, *numbers) in given["nodes"].items()
            }
            return cls(int(given["revision"]), nodes, tuple(given["writes"]))
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            if isinstance(error, LedgerFormatError):
                raise
            raise LedgerFormatError(f"it is no queue of this provider ({error})") from error

    def encode(self) -> bytes:
        """Return the ledger as JSON."""
        nodes = {
            name: (node.data.decode(errors="surrogateescape"), *node[1:])
            for name, node in self.nodes.items()
        }
        given = {
            "format": _FORMAT,
            "revision": self.revision,
            "writes": self.writes,
            "nodes": nodes,
        }
        return json.dumps(given, separators=(",", ":")).encode()

    def written(self, mark: str) -> Ledger:
        """Return the ledger with the mark of a write."""
        return replace(self, writes=(*self.writes, mark)[-_REMEMBERED:])

    def created(self, name: str, data: bytes, requires: str | None, now_ms: int) -> Ledger:
        """Return the ledger with one more node.

        :raises NodeGoneError: if the required node does not exist.
        :raises NodeTakenError: if a node of the name exists already.
        """
        if requires is not None and requires not in self.nodes:
            raise NodeGoneError(requires)
        if name in self.nodes:
            raise NodeTakenError(name)
        revision = self.revision + 1
        return self._with(revision, {**self.nodes, name: Node(data, revision, revision, now_ms, now_ms)})

    def replaced(self, name: str, data: bytes, version: Version, now_ms: int) -> Ledger:
        """Return the ledger with another content of a node.

        :raises NodeGoneError: if it does not exist.
        :raises NodeVersionError: if it has another version.
        """
        node, revision = self._at(name, version), self.revision + 1
        node = node._replace(data=data, version=revision, renewed_ms=now_ms)
        return self._with(revision, {**self.nodes, name: node})

    def deleted(self, name: str, version: Version) -> Ledger:
        """Return the ledger without a node.

        :raises NodeGoneError: if it does not exist.
        :raises NodeVersionError: if it has another version.
        """
        self._at(name, version)
        left = {other: node for other, node in self.nodes.items() if other != name}
        return self._with(self.revision + 1, left)

    def _with(self, revision: int, nodes: Mapping[str, Node]) -> Ledger:
        return replace(self, revision=revision, nodes=nodes)

    def _at(self, name: str, version: Version) -> Node:
        node = self.nodes.get(name)
        if node is None:
            raise NodeGoneError(name)
        if node.version != version:
            raise NodeVersionError(name)
        return node
