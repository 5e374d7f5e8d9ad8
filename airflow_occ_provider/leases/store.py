"""The store protocol of the queue: named, versioned nodes and six calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

Version: TypeAlias = int | str
"""The version of a node: compared for equality only, never the same again for one node."""


class NodeGoneError(Exception):
    """The node does not exist."""


class NodeVersionError(Exception):
    """The node has another version."""


class NodeTakenError(Exception):
    """A node of that name exists already."""


class Node(NamedTuple):
    """A node as it was read.

    :param data: its content.
    :param version: changed by every replacement.
    :param token: greater than the tokens of all nodes created before; it never changes.
    :param created_ms: epoch milliseconds by the store's clock.
    :param renewed_ms: the same, of its last replacement or its creation; 0 if the store does not know.
        For display: no decision is made by it.
    """

    data: bytes
    version: Version
    token: int
    created_ms: int
    renewed_ms: int = 0


class Store(Protocol):
    """Nodes with one order of creations, replacements and deletions for all clients.

    Threads share a client. Every call waits for a bounded time. It raises ``LockUnreachableError`` if
    the store does not answer in that time; the call may or may not have been carried out. The queue
    creates each name once. ``airflow_occ_provider.testing.lease_store`` is the test suite of a store.
    """

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        """Return the names of all nodes, with their versions.

        Each name comes with its node's version if the store lists versions without further requests,
        and with ``None`` otherwise. The queue reads a node only if its version is ``None`` or new.

        :param age_s: the listing includes every change answered that many seconds before the call, and
            every change of this client.
        """

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        """Return the nodes that exist.

        :param names: of the nodes.
        :param latest: whether the answer includes every change answered before the call. Otherwise it
            may come from a server that lags behind.
        """

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists.

        :param name: of the node.
        :param data: its content.
        :param requires: name of the node that must exist; ``None`` for no check.
        :raises NodeTakenError: if a node of the name exists already.
        :raises NodeGoneError: if the required node does not exist.
        """

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace a node's content and return its new version.

        :param name: of the node.
        :param data: its new content.
        :param version: the version that it must have.
        :raises NodeGoneError: if it does not exist.
        :raises NodeVersionError: if it has another version.
        """

    def delete(self, name: str, version: Version) -> None:
        """Delete a node.

        :param name: of the node.
        :param version: the version that it must have.
        :raises NodeGoneError: if it does not exist.
        :raises NodeVersionError: if it has another version.
        """

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now.

        A store without notifications polls.

        :param name: of the node.
        :param wake: called in any thread; it returns at once.
        """

    def close(self) -> None:
        """Close the connection; the nodes stay."""
