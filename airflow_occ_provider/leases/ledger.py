"""Pure: all nodes of a store as one value, and the changes of it.

One value gives one order of all changes, a check of another node with a creation, and a listing by one
request. Its encoded content never repeats, as the revision rises, so that a tag made of it never does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

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
            values: dict[str, Any] = json.loads(data)
            if values["format"] != _FORMAT:
                raise LedgerFormatError(
                    f"its format is {values['format']}, this release reads {_FORMAT}"
                )
            nodes = {
                name: Node(content.encode(errors="surrogateescape"), *numbers)
                for name, (content, *numbers) in values["nodes"].items()
            }
            return cls(int(values["revision"]), nodes, tuple(values["writes"]))
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
        values = {
            "format": _FORMAT,
            "revision": self.revision,
            "writes": self.writes,
            "nodes": nodes,
        }
        return json.dumps(values, separators=(",", ":")).encode()

    def written(self, mark: str) -> Ledger:
        """Return the ledger with the mark of a write."""
        return replace(self, writes=(*self.writes, mark)[-_REMEMBERED:])


class Change(NamedTuple):
    """A change of one node.

    :param kind: ``create``, ``replace`` or ``delete``.
    :param name: of the node.
    :param data: its new content.
    :param requires: name of the node that must exist for a creation; ``None`` for no check.
    :param version: the version that a node must have to be replaced or deleted.
    :param now_ms: epoch milliseconds of the change.
    """

    kind: str
    name: str
    data: bytes = b""
    requires: str | None = None
    version: Version = 0
    now_ms: int = 0

    def apply(self, ledger: Ledger) -> Ledger:
        """Return the changed ledger; its revision is one more, and that of the node.

        :raises NodeGoneError: if the node, or the required one, does not exist.
        :raises NodeTakenError: if the node to create exists already.
        :raises NodeVersionError: if the node has another version.
        """
        revision, nodes = ledger.revision + 1, dict(ledger.nodes)
        if self.kind == "create":
            if self.requires is not None and self.requires not in nodes:
                raise NodeGoneError(self.requires)
            if self.name in nodes:
                raise NodeTakenError(self.name)
            nodes[self.name] = Node(self.data, revision, revision, self.now_ms, self.now_ms)
            return replace(ledger, revision=revision, nodes=nodes)
        node = nodes.pop(self.name, None)
        if node is None:
            raise NodeGoneError(self.name)
        if node.version != self.version:
            raise NodeVersionError(self.name)
        if self.kind == "replace":
            nodes[self.name] = node._replace(data=self.data, version=revision, renewed_ms=self.now_ms)
        return replace(ledger, revision=revision, nodes=nodes)


class LedgerClient(Protocol):
    """A client of a ledger that processes share. Threads may share it.

    Each call raises ``LockUnreachableError`` if the service that keeps the ledger does not answer in
    time.
    """

    seen_s: float
    """The time of the monotonic clock before the last look at the ledger."""
    on_seen: Callable[[Ledger], None]
    """Called with each new ledger, in the thread that read or changed it."""

    def current(self, age_s: float = 0.0) -> Ledger:
        """Return the ledger as it was at most some seconds before the call."""

    def change(self, change: Change, *, is_urgent: bool = True) -> Ledger:
        """Make a change and return the ledger after it.

        :param is_urgent: whether it does not wait for those of other threads.
        """

    def close(self) -> None:
        """Close the connection."""
