"""A lease store as a backend author writes it: one file, here over a dictionary.

Its versions are text, as an object store's are, and it polls for deletions.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.store import (
    Node,
    NodeGoneError,
    NodeTakenError,
    NodeVersionError,
    Version,
)

_POLL_S = 0.02


@dataclass
class Bucket:
    """What the clients of one store share."""

    nodes: dict[str, Node] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    token: int = 0


class ToyStore:
    """A ``Store`` in a bucket.

    :param bucket: where the nodes are.
    :param timeout_s: seconds for each call.
    """

    def __init__(self, bucket: Bucket, timeout_s: float = 10.0) -> None:
        self._bucket, self._timeout_s = bucket, timeout_s
        self._closed = threading.Event()

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        with self._opened() as bucket:
            return {name: node.version for name, node in bucket.nodes.items()}

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        with self._opened() as bucket:
            return {name: node for name in names if (node := bucket.nodes.get(name))}

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        with self._opened() as bucket:
            if requires is not None and requires not in bucket.nodes:
                raise NodeGoneError(requires)
            if name in bucket.nodes:
                raise NodeTakenError(name)
            bucket.token += 1
            bucket.nodes[name] = Node(data, _version(), bucket.token, _now_ms(), _now_ms())
            return bucket.nodes[name]

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        with self._opened() as bucket:
            node = _at(bucket, name, version)
            node = node._replace(data=data, version=_version(), renewed_ms=_now_ms())
            bucket.nodes[name] = node
            return node.version

    def delete(self, name: str, version: Version) -> None:
        with self._opened() as bucket:
            _at(bucket, name, version)
            del bucket.nodes[name]

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        node = self.read([name]).get(name)
        if node is not None:
            threading.Thread(target=self._poll, args=(name, node.token, wake), daemon=True).start()
        return node is not None

    def close(self) -> None:
        self._closed.set()

    def _poll(self, name: str, token: int, wake: Callable[[], None]) -> None:
        while not self._closed.wait(_POLL_S):
            node = self._bucket.nodes.get(name)
            if node is None or node.token != token:
                wake()
                return

    @contextmanager
    def _opened(self) -> Iterator[Bucket]:
        if not self._bucket.lock.acquire(timeout=self._timeout_s):
            raise LockUnreachableError(f"the bucket did not answer in {self._timeout_s:g} s")
        try:
            yield self._bucket
        finally:
            self._bucket.lock.release()


def _at(bucket: Bucket, name: str, version: Version) -> Node:
    node = bucket.nodes.get(name)
    if node is None:
        raise NodeGoneError(name)
    if node.version != version:
        raise NodeVersionError(name)
    return node


def _now_ms() -> int:
    return round(time.time() * 1000)


def _version() -> str:
    return uuid.uuid4().hex
