"""All nodes of a store as one value, the changes of it, and a store over it.

One value gives one order of all changes, a check of another node with a creation, and a listing by one
request. Its encoded content never repeats, as the revision rises, so that a tag made of it never does.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
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
_FRESH_PER_POLL = 15
_log = logging.getLogger(__name__)


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


class LedgerStore:
    """The ``Store`` in a ledger. Threads may share it.

    :param ledger: the client of the ledger, which the store closes.
    :param poll_s: the most seconds between two looks for deletions, while one is waited for.
    """

    def __init__(self, ledger: LedgerClient, poll_s: float) -> None:
        self._fresh_s = fresh_s(poll_s)
        self._ledger = ledger
        self._watches = _Watches(ledger, poll_s)

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        """Return the names of all nodes, with their versions."""
        return {name: node.version for name, node in self._ledger.current(age_s).nodes.items()}

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        """Return the nodes that exist, at most a fifteenth of a poll ago."""
        nodes = self._ledger.current(0.0 if latest else self._fresh_s).nodes
        return {name: nodes[name] for name in names if name in nodes}

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        creation = Change("create", name, data, requires, now_ms=_now_ms())
        return self._ledger.change(creation).nodes[name]

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace a node's content and return its new version."""
        replacement = Change("replace", name, data, version=version, now_ms=_now_ms())
        return self._ledger.change(replacement, is_urgent=False).nodes[name].version

    def delete(self, name: str, version: Version) -> None:
        """Delete a node."""
        self._ledger.change(Change("delete", name, version=version))

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        ledger = self._ledger.current()
        node = ledger.nodes.get(name)
        if node is not None:
            self._watches.add(_Watch(name, node.token, ledger.revision, wake))
        return node is not None

    def close(self) -> None:
        """Stop looking for deletions and close the connection; the nodes stay."""
        self._watches.close()
        self._ledger.close()


class _Watch(NamedTuple):
    name: str
    token: int
    seen: int  # the revision of a ledger that has the node
    wake: Callable[[], None]

    def is_due(self, ledger: Ledger) -> bool:
        """Whether a ledger shows that the node is gone; an older one shows nothing."""
        node = ledger.nodes.get(self.name)
        return ledger.revision >= self.seen and (node is None or node.token != self.token)


class _Watches:
    """The waiters for deletions, woken by any call's look.

    A thread looks if no call does.

    :param ledger: in which nodes are deleted.
    :param poll_s: the most seconds between two looks while there are waiters.
    """

    def __init__(self, ledger: LedgerClient, poll_s: float) -> None:
        self._ledger, self._poll_s = ledger, poll_s
        self._latest = Ledger(0)
        ledger.on_seen = self.wake
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, watch: _Watch) -> None:
        """Wake a waiter once when a node is deleted; in any thread."""
        with self._lock:
            if watch.is_due(self._latest):  # another thread has looked since
                watch.wake()
                return
            self._watches.append(watch)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, daemon=True, name="lease-poll")
                self._thread.start()

    def wake(self, ledger: Ledger) -> None:
        """Wake the waiters for what is gone in a ledger."""
        with self._lock:
            if ledger.revision > self._latest.revision:
                self._latest = ledger
            due = [watch for watch in self._watches if watch.is_due(ledger)]
            if due:
                self._watches = [watch for watch in self._watches if watch not in due]
        for watch in due:
            with suppress(Exception):  # the event loop of this waiter may be closed
                watch.wake()

    def close(self) -> None:
        """Stop looking after the current look."""
        self._closed.set()

    def _run(self) -> None:
        pause_s = self._until_due_s()
        while not self._closed.wait(pause_s):
            if self._is_over():
                return
            pause_s = self._until_due_s()
            if pause_s > 0:
                continue  # another call has looked since
            try:
                self._ledger.current()
                pause_s = self._until_due_s()
            except Exception as error:  # noqa: BLE001 - the waiters keep waiting
                _log.debug("Looking again: %s", error)
                pause_s = self._poll_s

    def _until_due_s(self) -> float:
        return max(0.0, self._ledger.seen_s + self._poll_s - time.monotonic())

    def _is_over(self) -> bool:
        with self._lock:
            if not self._watches:
                self._thread = None
            return not self._watches


def fresh_s(poll_s: float) -> float:
    """Return the age in seconds up to which a reader takes a ledger as it is."""
    return poll_s / _FRESH_PER_POLL


def _now_ms() -> int:
    return round(time.time() * 1000)
