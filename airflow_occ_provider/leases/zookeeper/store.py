"""What ZooKeeper keeps: the queue's store, and Hudi's own commit lock.

The store's znodes are persistent; the token is the czxid.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
)

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.commit_lock import LockEntry
from airflow_occ_provider.leases.store import (
    Node,
    NodeGoneError,
    NodeTakenError,
    NodeVersionError,
    Version,
)
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.client import Session, acl_of

_FOLDER = "requests"
# Curator's mutex (``_c_<uuid>-lock-<number>``): the lowest number holds, whatever the prefix.
_ENTRY = re.compile(r".*lock-(?P<number>\d{10})")
_APPLICATION, _UNKNOWN = "application_id=", "Unknown"


class ZookeeperStore:
    """The ``Store`` below a path of ZooKeeper, apart from Hudi's own locks.

    :param session: of these nodes, if one is open already.
    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it rejects the credentials or the path.
    """

    def __init__(self, access: ZookeeperAccess, root: str, session: Session | None = None) -> None:
        self._session = session or Session(access)
        self._client = self._session.client
        self._acl = acl_of(access)
        self._folder = posixpath.join(root, _FOLDER)

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        try:
            if requires is None:
                return self._create(name, data)
            return self._create_requiring(name, data, requires)
        except NodeExistsError:
            raise NodeTakenError(name) from None

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:  # noqa: ARG002
        """Return the names of all nodes, including every change answered before the call.

        ZooKeeper lists children without their versions; each would be one more request.
        """
        try:
            ask = partial(self._synced, self._client.get_children_async, self._folder)
            return dict.fromkeys(self._session.call(ask, self._folder))
        except NoNodeError:
            return {}

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        """Return the nodes that exist."""
        get = partial(self._synced, self._client.get_async) if latest else self._client.get_async
        paths = {name: self._path(name) for name in names}
        started = [(name, get(path)) for name, path in paths.items()]
        nodes = {}
        for name, first in started:
            with suppress(NoNodeError):
                data, stat = self._session.call(_once(first, get, paths[name]), paths[name])
                nodes[name] = _node(data, stat)
        return nodes

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace a node's content and return its new version."""
        path = self._path(name)
        try:
            stat = self._session.call(lambda: self._client.set_async(path, data, version=version), path)
        except NoNodeError:
            raise NodeGoneError(name) from None
        except BadVersionError:
            raise NodeVersionError(name) from None
        return int(stat.version)

    def delete(self, name: str, version: Version) -> None:
        """Delete a node."""
        path, starts = self._path(name), 0

        def start() -> Any:
            nonlocal starts
            starts += 1
            return self._client.delete_async(path, version=version)

        try:
            self._session.call(start, path)
        except NoNodeError:
            if starts == 1:  # otherwise an earlier start deleted it, and its answer was lost
                raise NodeGoneError(name) from None
        except BadVersionError:
            raise NodeVersionError(name) from None
        except NotEmptyError:
            raise ConfigurationError(
                "lease root",
                f"{path} is not a request: it has children",
                remedy="delete it with its children in ZooKeeper's own command line",
            ) from None

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        # A watch on its (missing) children: the deletion fires it, a renewal does not.
        path = self._path(name)
        try:
            self._session.call(
                lambda: self._client.get_children_async(path, watch=lambda _: wake()), path
            )
        except NoNodeError:
            return False
        return True

    def close(self) -> None:
        """Close the session; the nodes stay."""
        self._session.close()

    def _create(self, name: str, data: bytes) -> Node:
        path = self._path(name)
        while True:
            try:
                _, stat = self._session.call(
                    lambda: self._client.create_async(path, data, acl=self._acl, include_data=True),
                    path,
                )
            except NoNodeError:
                self._session.call(
                    lambda: self._client.ensure_path_async(self._folder, acl=self._acl), self._folder
                )
            else:
                return _node(data, stat)

    def _create_requiring(self, name: str, data: bytes, requires: str) -> Node:
        path = self._path(name)

        def start() -> Any:
            both = self._client.transaction()
            both.check(self._path(requires), -1)
            both.create(path, data, acl=self._acl)
            return both.commit_async()

        for answer in self._session.call(start, path):
            if isinstance(answer, NoNodeError):
                raise NodeGoneError(requires)
            if isinstance(answer, Exception) and not isinstance(answer, RolledBackError):
                with self._session.translated(path):
                    raise answer
        node = self.read([name]).get(name)
        if node is None:
            raise NodeGoneError(name)
        return node

    def _synced(self, ask: Callable[[str], Any], path: str) -> _Both:
        return _Both(self._client.sync_async(path), ask(path))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


class _Both(NamedTuple):
    """Two pipelined calls; the second sees the state that the first waits for."""

    first: Any
    second: Any

    def get(self, timeout: float) -> Any:
        # If the connection is lost in between, only the first call fails.
        deadline = time.monotonic() + timeout
        self.first.get(timeout=timeout)
        return self.second.get(timeout=max(deadline - time.monotonic(), 0))


def _once(first: Any, again: Callable[[str], Any], path: str) -> Callable[[], Any]:
    """Return a function that returns the pending call first, then new calls."""
    pending = [first]
    return lambda: pending.pop() if pending else again(path)


def _node(data: bytes, stat: Any) -> Node:
    return Node(data, stat.version, stat.czxid, stat.ctime, stat.mtime)


class ZookeeperCommitLock:
    """The ``CommitLock`` of Hudi's ZooKeeper lock provider.

    The owner of an entry is the address of its machine before Hudi 1.2. In Hudi 1.2 it is the id of its
    Spark application in one of the four times that a write takes the lock, and empty in the others.

    :param lock_key: name of the lock; Hudi takes ``hoodie.table.name``.
    :param session: that it may use, if one is open already.
    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it rejects the credentials.
    """

    def __init__(
        self, access: ZookeeperAccess, base_path: str, lock_key: str, session: Session | None = None
    ) -> None:
        self.path = f"{base_path}/{lock_key}"
        self._session = session or Session(access)

    def entries(self) -> tuple[LockEntry, ...]:
        """Return the holder and the waiters, the holder first."""
        client, path = self._session.client, self.path
        try:
            names = self._session.call(lambda: client.get_children_async(path), path)
        except NoNodeError:
            return ()
        requests = (self._entry(path, match) for match in map(_ENTRY.fullmatch, names) if match)
        entries = sorted(filter(None, requests), key=lambda entry: entry.number)
        return tuple(replace(entry, held=place == 0) for place, entry in enumerate(entries))

    def times_requested(self) -> int:
        """Return how often the lock was requested since its node was created."""
        client, path = self._session.client, self.path
        stat = self._session.call(lambda: client.exists_async(path), path)
        # The child version counts created and deleted children.
        return (stat.cversion + stat.numChildren) // 2 if stat else 0

    def counted_since_ms(self) -> int | None:
        """Return when the lock's node, or the nearest one above, was created.

        :returns: ``None`` if none of them exists: ZooKeeper's root has no time.
        """
        client, path = self._session.client, self.path
        while path != "/":
            stat = self._session.call(partial(client.exists_async, path), path)
            if stat:
                return int(stat.ctime)
            path = posixpath.dirname(path)
        return None

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    def _entry(self, path: str, name: re.Match[str]) -> LockEntry | None:
        client, node = self._session.client, posixpath.join(path, name[0])
        try:
            data, stat = self._session.call(lambda: client.get_async(node), node)
        except NoNodeError:
            return None
        return LockEntry(int(name["number"]), _owner(data), stat.ctime, held=False)


def _owner(data: Any) -> str:
    text = bytes(data or b"").decode("utf-8", errors="replace").strip()
    owner = text.removeprefix(_APPLICATION)
    return "" if owner == _UNKNOWN else owner
