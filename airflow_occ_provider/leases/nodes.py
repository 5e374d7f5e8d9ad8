"""The store protocol of the queue: named, versioned nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class NodeGoneError(Exception):
    """The node does not exist."""


class NodeVersionError(Exception):
    """The node has another version."""


class NodeTakenError(Exception):
    """A node of that name exists already."""


class Node(NamedTuple):
    """A node as it was read.

    :param data: its content.
    :param version: raised by every write.
    :param token: greater than the tokens of all nodes created before.
    :param created_ms: epoch milliseconds by the store's clock.
    """

    data: bytes
    version: int
    token: int
    created_ms: int


class Nodes(Protocol):
    """A store with one order of creations, writes and deletions for all clients.

    After a ``LockUnreachableError`` the call may or may not have been carried out.
    """

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists.

        :param name: of the node.
        :param data: its content.
        :param requires: name of the node that must exist; ``None`` for no check.
        :raises NodeTakenError: if a node of the name exists already.
        :raises NodeGoneError: if the required node does not exist.
        """

    def names(self) -> frozenset[str]:
        """Return the names of all nodes, including every change answered before the call."""

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        """Return the nodes that exist."""

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        """Return the nodes that exist, including every change answered before the call.

        ``read`` may be answered by a server that lags behind.
        """

    def write(self, name: str, data: bytes, version: int) -> int:
        """Replace a node's content and return its new version.

        :raises NodeGoneError: if it does not exist.
        :raises NodeVersionError: if it has another version.
        """

    def delete(self, name: str, version: int) -> None:
        """Delete a node.

        :raises NodeGoneError: if it does not exist.
        :raises NodeVersionError: if it has another version.
        """

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""

    def close(self) -> None:
        """Close the connection."""
