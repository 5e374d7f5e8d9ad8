"""Hudi's own commit lock of a table, held in place of another writer that is just committing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pymetastore.hive_metastore.ttypes import (
    CheckLockRequest,
    HeartbeatRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    UnlockRequest,
)

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from tests.support.writers import commit_lock_held

_PATIENCE_S = 60


@contextmanager
def lock_held(stack: EmbeddedStack, table: str) -> Iterator[None]:
    """Hold the lock in the stack's lock service, so that writers stop just before they commit."""
    name = table.rpartition("/")[2]
    if stack.lock == "zookeeper":
        held = commit_lock_held(stack.zookeeper.hosts, name)
    elif stack.lock == "metastore":
        held = _held_in_metastore(stack, name)
    else:
        held = _held_as_file(Path(table, ".hoodie", "lock"))
    with held:
        yield


class TableLocks:
    """Exclusive locks on tables of the database ``default``, as Hudi's lock provider takes them."""

    def __init__(self, uris: str) -> None:
        self._client = MetastoreClient(MetastoreAccess(uris))

    def lock(self, table: str, user: str) -> tuple[int, bool]:
        """Request a lock; return its id and whether it is granted."""
        component = LockComponent(
            type=LockType.EXCLUSIVE, level=LockLevel.TABLE, dbname="default", tablename=table
        )
        request = LockRequest(component=[component], user=user, hostname="airflow")
        answer = self._client.call("lock", request, repeat=False)
        return answer.lockid, answer.state == LockState.ACQUIRED

    def check(self, lock_id: int) -> bool:
        """Return whether a lock is granted now."""
        state = self._client.call("check_lock", CheckLockRequest(lockid=lock_id)).state
        return bool(state == LockState.ACQUIRED)

    def heartbeat(self, lock_id: int) -> None:
        self._client.call("heartbeat", HeartbeatRequest(lockid=lock_id))

    def unlock(self, lock_id: int) -> None:
        self._client.call("unlock", UnlockRequest(lockid=lock_id))

    def close(self) -> None:
        self._client.close()


@contextmanager
def _held_in_metastore(stack: EmbeddedStack, name: str) -> Iterator[None]:
    ended = threading.Event()
    with closing(TableLocks(stack.metastore.uris)) as locks:
        number, is_granted = locks.lock(name, "test")

        def renew() -> None:
            while not ended.wait(stack.metastore.lock_timeout_s / 5):
                locks.heartbeat(number)

        thread = threading.Thread(target=renew, daemon=True)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while not (is_granted or locks.check(number)):
                assert time.monotonic() < deadline, f"the lock of {name} is held by another"
                time.sleep(0.1)
            thread.start()
            yield
        finally:
            ended.set()
            if thread.is_alive():
                thread.join()
            locks.unlock(number)


@contextmanager
def _held_as_file(path: Path) -> Iterator[None]:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            path.touch(exist_ok=False)
            break
        except FileExistsError:
            assert time.monotonic() < deadline, f"{path} is held by another"
            time.sleep(0.05)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
