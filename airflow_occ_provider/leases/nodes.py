"""What a line needs of a store: named nodes that are created, compared, replaced and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class NodeGoneError(Exception):
    """There is no such node."""


class NodeMovedError(Exception):
    """The node has another version."""


class NodeTakenError(Exception):
    """There is such a node already."""


class Node(NamedTuple):
    """A node as it was read.

    :param data: its content.
    :param version: raised by every write.
    :param token: greater than those of all nodes created before.
    :param created_ms: epoch milliseconds by the store's clock.
    """

    data: bytes
    version: int
    token: int
    created_ms: int


class Nodes(Protocol):
    """A store whose order of creations, writes and deletions is the same for everybody.

    ``LockUnreachableError`` means that the call may or may not have been carried out.
    """

    def create(self, name: str, data: bytes, beside: str | None = None) -> Node:
        """Create a node, in the same instant in which another one is there.

        :raises NodeTakenError: if there is one of the name.
        :raises NodeGoneError: if the one beside is not there.
        """

    def names(self) -> frozenset[str]:
        """Return the names of all nodes; every change that was answered before the call is seen."""

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        """Return those nodes that are there."""

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        """Return those nodes that are there; every change that was answered before the call is seen.

        ``read`` may be answered by a server that lags behind.
        """

    def write(self, name: str, data: bytes, version: int) -> int:
        """Replace a node's content, and return its new version.

        :raises NodeGoneError: if it is not there.
        :raises NodeMovedError: if its version is another.
        """

    def delete(self, name: str, version: int) -> None:
        """Delete a node.

        :raises NodeGoneError: if it is not there.
        :raises NodeMovedError: if its version is another.
        """

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        """Have ``wake`` called once when a node is deleted; whether it is there now."""

    def close(self) -> None:
        """End the connection."""
