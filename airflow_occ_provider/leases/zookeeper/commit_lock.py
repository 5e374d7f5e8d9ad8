"""A view of Hudi's own commit lock: who holds it, who waits. It makes and changes nothing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kazoo.exceptions import NoNodeError

from airflow_occ_provider.leases.commit_lock import LockSeat
from airflow_occ_provider.leases.zookeeper.client import Access, Session

# Curator's mutex (``_c_<uuid>-lock-<number>``): the lowest number holds, whatever stands before.
_SEAT = re.compile(r".*lock-(?P<number>\d{10})")
_APPLICATION, _UNKNOWN = "application_id=", "Unknown"


class ZookeeperCommitLock:
    """A ``CommitLock`` as Hudi's ZooKeeper lock provider makes it.

    Its seats tell the id of their Spark application (Hudi 1.2, for one of the four times that a
    write takes the lock; the others nothing), before 1.2 their machine's address.

    :param access: where ZooKeeper is, and as whom to speak to it.
    :param base_path: the node under which Hudi makes its locks.
    :param lock_key: name of the lock; Hudi takes ``hoodie.table.name``.
    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it refuses the credentials.
    """

    def __init__(self, access: Access, base_path: str, lock_key: str) -> None:
        self.path = f"{base_path}/{lock_key}"
        self._session = Session(access)

    def seats(self) -> tuple[LockSeat, ...]:
        """Return who has the lock and who waits for it, the holder first."""
        client, path = self._session.client, self.path
        try:
            names = self._ask(path, lambda: client.get_children_async(path))
        except NoNodeError:
            return ()
        found = (self._seat(path, match) for match in map(_SEAT.fullmatch, names) if match)
        seats = sorted(filter(None, found), key=lambda seat: seat.number)
        return tuple(replace(seat, holds=place == 0) for place, seat in enumerate(seats))

    def times_taken(self) -> int:
        """Return how often somebody has come for the lock since its node was made."""
        client, path = self._session.client, self.path
        stat = self._ask(path, lambda: client.exists_async(path))
        # The version of a node's children counts those made and those gone.
        return (stat.cversion + stat.numChildren) // 2 if stat else 0

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _seat(self, path: str, name: re.Match[str]) -> LockSeat | None:
        client, node = self._session.client, posixpath.join(path, name[0])
        try:
            data, stat = self._ask(node, lambda: client.get_async(node))
        except NoNodeError:
            return None
        return LockSeat(int(name["number"]), _who(data), stat.ctime, holds=False)

    def _ask(self, path: str, start: Callable[[], Any]) -> Any:
        return self._session.call(start, path)


def _who(data: Any) -> str:
    text = bytes(data or b"").decode("utf-8", errors="replace").strip()
    who = text.removeprefix(_APPLICATION)
    return "" if who == _UNKNOWN else who
