"""The nodes of a line as persistent nodes of ZooKeeper; the order token is the creation's zxid."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
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
from airflow_occ_provider.leases.nodes import Node, NodeGoneError, NodeMovedError, NodeTakenError
from airflow_occ_provider.leases.zookeeper.client import Access, Session

_FOLDER = "requests"


class ZookeeperNodes:
    """Nodes below a path of ZooKeeper.

    :param access: where, and as whom.
    :param root: the path below which leases live, apart from Hudi's own locks.
    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it refuses the credentials, or the path.
    """

    def __init__(self, access: Access, root: str) -> None:
        self._session = Session(access)
        self._client = self._session.client
        self._acl = access.acl
        self._folder = posixpath.join(root, _FOLDER)

    def create(self, name: str, data: bytes, beside: str | None = None) -> Node:
        """Create a node, in the same instant in which another one is there."""
        try:
            if beside is None:
                return self._create(name, data)
            return self._create_beside(name, data, beside)
        except NodeExistsError:
            raise NodeTakenError(name) from None

    def names(self) -> frozenset[str]:
        """Return the names of all nodes; every change that was answered before the call is seen."""
        try:
            ask = partial(self._synced, self._client.get_children_async, self._folder)
            return frozenset(self._session.call(ask, self._folder))
        except NoNodeError:
            return frozenset()

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        """Return those nodes that are there."""
        wanted = list(names)
        started = [self._client.get_async(self._path(name)) for name in wanted]
        found = {}
        for name, first in zip(wanted, started, strict=True):
            try:
                path = self._path(name)
                data, stat = self._session.call(_once(first, self._client.get_async, path), path)
            except NoNodeError:
                continue
            found[name] = _node(data, stat)
        return found

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        """Return those nodes that are there; every change that was answered before the call is seen."""
        found = {}
        for name in names:
            path = self._path(name)
            with suppress(NoNodeError):
                data, stat = self._session.call(
                    partial(self._synced, self._client.get_async, path), path
                )
                found[name] = _node(data, stat)
        return found

    def write(self, name: str, data: bytes, version: int) -> int:
        """Replace a node's content, and return its new version."""
        path = self._path(name)
        try:
            stat = self._session.call(lambda: self._client.set_async(path, data, version=version), path)
        except NoNodeError:
            raise NodeGoneError(name) from None
        except BadVersionError:
            raise NodeMovedError(name) from None
        return int(stat.version)

    def delete(self, name: str, version: int) -> None:
        """Delete a node."""
        path, starts = self._path(name), 0

        def start() -> Any:
            nonlocal starts
            starts += 1
            return self._client.delete_async(path, version=version)

        try:
            self._session.call(start, path)
        except NoNodeError:
            if starts == 1:  # else it was ours that is gone, and the answer was lost
                raise NodeGoneError(name) from None
        except BadVersionError:
            raise NodeMovedError(name) from None
        except NotEmptyError:
            raise ConfigurationError(
                "lease root",
                f"{path} is no request: it has children",
                remedy="delete it with its children, by ZooKeeper's own command line",
            ) from None

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        """Have ``wake`` called once when a node is deleted; whether it is there now."""
        # A watch on its children, of which it has none: renewals do not fire it, the deletion does.
        path = self._path(name)
        try:
            self._session.call(
                lambda: self._client.get_children_async(path, watch=lambda _: wake()), path
            )
        except NoNodeError:
            return False
        return True

    def close(self) -> None:
        """End the session; the nodes stay."""
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
                self._make_folder()
            else:
                return _node(data, stat)

    def _create_beside(self, name: str, data: bytes, beside: str) -> Node:
        path = self._path(name)

        def start() -> Any:
            both = self._client.transaction()
            both.check(self._path(beside), -1)
            both.create(path, data, acl=self._acl)
            return both.commit_async()

        for answer in self._session.call(start, path):
            if isinstance(answer, NoNodeError):
                raise NodeGoneError(beside)
            if isinstance(answer, Exception) and not isinstance(answer, RolledBackError):
                with self._session.told(path):
                    raise answer
        node = self.read([name]).get(name)
        if node is None:
            raise NodeGoneError(name)
        return node

    def _make_folder(self) -> None:
        self._session.call(
            lambda: self._client.ensure_path_async(self._folder, acl=self._acl), self._folder
        )

    def _synced(self, ask: Callable[[str], Any], path: str) -> _Both:
        return _Both(self._client.sync_async(path), ask(path))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


class _Both(NamedTuple):
    """Two calls under way, one right after the other: the second sees what the first waits for."""

    first: Any
    second: Any

    def get(self, timeout: float) -> Any:
        # A connection lost between them loses the first one alone.
        deadline = time.monotonic() + timeout
        self.first.get(timeout=timeout)
        return self.second.get(timeout=max(deadline - time.monotonic(), 0))


def _once(first: Any, again: Callable[[str], Any], path: str) -> Callable[[], Any]:
    """Return a start that gives the call under way at first, and new ones after."""
    under_way = [first]
    return lambda: under_way.pop() if under_way else again(path)


def _node(data: bytes, stat: Any) -> Node:
    return Node(data, stat.version, stat.czxid, stat.ctime)
