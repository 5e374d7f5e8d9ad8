"""The read-only view of Hudi's own commit lock in ZooKeeper."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from airflow_occ_provider.leases.commit_lock import LockEntry
from airflow_occ_provider.leases.zookeeper.backend import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.client import Session

# Curator's mutex (``_c_<uuid>-lock-<number>``): the lowest number holds, whatever the prefix.
_ENTRY = re.compile(r".*lock-(?P<number>\d{10})")
_APPLICATION, _UNKNOWN = "application_id=", "Unknown"


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
