"""The queue's store in a Hive metastore: a log of changes, by its lock calls.

The metastore gives each lock the next number, and shows it after all locks with a lower one. So locks
are a log with one order for all clients. A change is a shared lock that nothing waits for, with its
content in the names of its components. Each client computes the ledger by the changes in their order,
so that no change has to be repeated because another one came first. From time to time a client adds the
ledger itself, up to its own change, and releases the locks that the ledger before it includes::

    changes/p0of1=<text>       a change of one node
    upto_<lock>_from_<lock>/p0of3=<text>
                               the ledger after the change of the first lock, in pieces, computed from
                               the ledger after that of the second one; 0 for an empty ledger

The ledger before the last one stays with all changes since, for a reader that saw a part of a removal.
The metastore drops a lock without a heartbeat for its time-out. A ledger is as young as the last change
but for a tenth of that time-out, and is dropped before the changes that follow it.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeAlias

from pymetastore.hive_metastore.ttypes import (
    ConfigValSecurityException,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    NoSuchLockException,
    ShowLocksRequest,
    UnlockRequest,
)

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.commit_lock import LockEntry
from airflow_occ_provider.leases.ledger import Change, Ledger, LedgerFormatError, LedgerStore
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.store import NodeGoneError, NodeTakenError, NodeVersionError

_USER = "airflow_occ"
_log = logging.getLogger(__name__)
_FORMAT = 1
_CHANGES = "changes"
_LEDGER = re.compile(r"upto_(\d+)_from_(\d+)")
# Hive 4 accepts only partitions of the form column=value and folds the case of all names
# (TxnUtils.normalizePartitionCase); Hive's lock tables hold 767 characters of a partition's name.
_PIECE = re.compile(r"p(?P<number>\d+)of(?P<count>\d+)=(?P<text>[a-z2-7]+)")
_PIECE_CHARS = 700
_MOST_PIECES = 400  # a metastore needs a second for these, and seconds for a thousand
_MOST_CHANGES = 16
REFRESHES_PER_LIFETIME = 10
"""How often the ledger is added again, at least, while a lock lives without a heartbeat."""
_Digest: TypeAlias = tuple[int, int, int]
"""The id and the time of the last lock, and the number of components: shows whether a log is new.

A restored database gives ids again, and a lock may be dropped behind a later one.
"""


class LockRow(NamedTuple):
    """One component of a lock as the metastore shows it.

    :param lock_id: greater than the ids of all locks requested before.
    :param acquired: whether it was granted when its owner last asked.
    :param since_ms: epoch milliseconds by the metastore's clock of its last heartbeat.
    :param acquired_ms: when it was granted; ``None`` for a waiter.
    """

    lock_id: int
    table: str
    partition: str
    acquired: bool
    owner: str
    since_ms: int
    acquired_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MetastoreLocks:
    """The locks of one database, which need not exist; they expire without heartbeats.

    After a ``LockUnreachableError`` the call may or may not have been carried out.
    """

    client: MetastoreClient
    database: str

    def lock(self, table: str, partitions: Iterable[str]) -> int:
        """Request a shared lock on some partitions of a table and return its id.

        Its id and its components become visible in one transaction, after those of all locks with a
        lower id.
        """
        components = [
            LockComponent(
                type=LockType.SHARED_READ,
                level=LockLevel.PARTITION,
                dbname=self.database,
                tablename=table,
                partitionname=partition,
            )
            for partition in partitions
        ]
        request = LockRequest(component=components, user=_USER, hostname="airflow", agentInfo=_USER)
        return int(self.client.call("lock", request, repeat=False).lockid)

    def unlock(self, lock_id: int) -> None:
        """Release a lock, if it exists."""
        with suppress(NoSuchLockException):
            self.client.call("unlock", UnlockRequest(lockid=lock_id), answers=(NoSuchLockException,))

    def rows(self, table: str | None = None) -> list[LockRow]:
        """Return all components of all locks, or only those on one table.

        They include every change answered before the call.
        """
        request = ShowLocksRequest(dbname=self.database, tablename=table)
        return [_row(shown) for shown in self.client.call("show_locks", request).locks or ()]

    def setting(self, name: str) -> str:
        """Return a setting of the metastore; empty if it is unknown or hidden."""
        hidden = ConfigValSecurityException
        with suppress(hidden):
            return str(self.client.call("get_config_value", name, "", answers=(hidden,)) or "")
        return ""

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


def _row(shown: Any) -> LockRow:
    return LockRow(
        shown.lockid,
        shown.tablename or "",
        shown.partname or "",
        shown.state == LockState.ACQUIRED,
        f"{shown.user}@{shown.hostname}",
        shown.lastheartbeat or 0,
        shown.acquiredat or None,
    )


class MetastoreCommitLock:
    """The ``CommitLock`` of Hudi's metastore lock provider.

    :raises LockUnreachableError: if the metastore does not answer in time.
    """

    def __init__(self, access: MetastoreAccess, database: str, table: str) -> None:
        self.path = f"{database}.{table}"
        self._table = table
        self._locks = MetastoreLocks(MetastoreClient(access), database)

    def entries(self) -> tuple[LockEntry, ...]:
        """Return the holder and the waiters, the holder first."""
        rows = sorted(self._locks.rows(self._table), key=lambda row: (not row.acquired, row.lock_id))
        return tuple(LockEntry(row.lock_id, row.owner, row.acquired_ms, row.acquired) for row in rows)

    def times_requested(self) -> None:
        """Return ``None``: a metastore does not count requests."""

    def counted_since_ms(self) -> None:
        """Return ``None``: a metastore does not count requests."""

    def close(self) -> None:
        """Close the connection."""
        self._locks.close()


class MetastoreStore(LedgerStore):
    """The queue's store in a metastore.

    :param locks: of a database that holds nothing else.
    :param lifetime_s: seconds after which the metastore drops a lock without a heartbeat.
    :param poll_s: the most seconds between two looks for deletions, while one is waited for.
    """

    def __init__(self, locks: MetastoreLocks, lifetime_s: float, poll_s: float = 1.0) -> None:
        super().__init__(LockLog(locks, lifetime_s), poll_s)


class LockLog:
    """A ``LedgerClient`` over the locks of a metastore. Threads may share it.

    :param locks: of a database that holds nothing else.
    :param lifetime_s: seconds after which the metastore drops a lock without a heartbeat.
    """

    def __init__(self, locks: MetastoreLocks, lifetime_s: float) -> None:
        self._locks = locks
        self._oldest_ms = lifetime_s * 1000 / REFRESHES_PER_LIFETIME
        self._mutex = threading.Lock()
        self._ledger, self._digest, self._piece_count = Ledger(0), _digest([]), 0
        self.seen_s = float("-inf")
        self.on_seen: Callable[[Ledger], None] = lambda _: None

    def current(self, age_s: float = 0.0) -> Ledger:
        """Return the ledger as it was at most some seconds before the call."""
        began_s = time.monotonic()
        if self.seen_s < began_s - age_s:
            rows = self._locks.rows()
            if (digest := _digest(rows)) == self._digest:
                self._learn(self._ledger, digest, began_s)
            else:
                # Read again: now each lock up to the last one is there with all components. A database
                # whose reads are no snapshots may have shown the last one without an earlier one.
                log = _Log.of(self._locks.rows())
                self._piece_count = log.piece_count
                self._learn(log.ledger_at(digest[0], max(log.ledgers, default=0)), digest, began_s)
        return self._ledger

    def change(self, change: Change, *, is_urgent: bool = True) -> Ledger:  # noqa: ARG002
        """Make a change and return the ledger after it.

        :raises ConfigurationError: if the queue has become too long for a metastore.
        """
        if change.kind == "create" and self._piece_count > _MOST_PIECES:
            raise ConfigurationError(
                "lease_database",
                f"{len(self._ledger.nodes)} requests in one queue are too many for a metastore",
                remedy="keep the leases in ZooKeeper or in a bucket, or use connections with several "
                "lease databases",
            )
        lock_id = self._locks.lock(_CHANGES, _pieces(_encoded(change)))
        began_s = time.monotonic()
        rows = self._locks.rows()
        log, digest = _Log.of(rows), _digest(row for row in rows if row.lock_id <= lock_id)
        self._piece_count = log.piece_count
        upto = log.last_upto(lock_id - 1)
        if lock_id not in log.changes or not (upto or log.is_whole):
            raise LockUnreachableError(
                f"the Hive metastore shows no result of the change {lock_id} of the queue any more",
                remedy="check how long the metastore takes for an answer",
            )
        before = log.ledger_at(lock_id - 1, upto)
        try:
            after = change.apply(replace(before, revision=lock_id - 1))
        except (NodeGoneError, NodeTakenError, NodeVersionError):
            self._learn(before, digest, began_s)
            raise
        self._learn(after, digest, began_s)
        self._refresh(log, lock_id, after)
        return after

    def close(self) -> None:
        """Close the connection; the locks stay until the metastore drops them."""
        self._locks.close()

    def _learn(self, ledger: Ledger, digest: _Digest, began_s: float) -> None:
        """Keep what a look has shown, unless a look that began later has shown more."""
        with self._mutex:
            if began_s < self.seen_s:
                return
            self._ledger, self._digest, self.seen_s = ledger, digest, began_s
        self.on_seen(ledger)

    def _refresh(self, log: _Log, lock_id: int, after: Ledger) -> None:
        """Add the ledger after a change, and release the locks that the ledger before it includes.

        :raises LockUnreachableError: if it has to be added and cannot: a lease lasts as long as a ledger
            from which its last renewal is known, so that the renewal does not count.
        """
        upto = log.last_upto(lock_id)
        last = log.ledgers.get(upto)
        age_ms = log.changes[lock_id].since_ms - last.since_ms if last else self._oldest_ms
        must, count = age_ms >= self._oldest_ms, sum(number > upto for number in log.changes)
        if not must and (
            lock_id < max(log.changes) or not (age_ms >= self._oldest_ms / 2 or count >= _MOST_CHANGES)
        ):
            return  # the client of a later change does it, or it is too early
        try:
            self._locks.lock(f"upto_{lock_id}_from_{upto}", _pieces(after.encode()))
        except LockUnreachableError as error:
            if must:
                raise
            _log.warning("The ledger of the queue is added by its next change: %s", error)
            return
        # Ledgers first: while one is there, so are the changes that follow it.
        ended = [ledger.lock_id for number, ledger in log.ledgers.items() if number < upto]
        for ended_id in (*ended, *(number for number in log.changes if number <= upto)):
            self._locks.unlock(ended_id)


class _Entry(NamedTuple):
    """A lock of the log, with all its components."""

    lock_id: int
    text: str
    since_ms: int
    computed_from: int = 0

    @property
    def data(self) -> bytes:
        """Its content.

        :raises LedgerFormatError: if it is none of this provider.
        """
        padding = "=" * (-len(self.text) % 8)
        try:
            return zlib.decompress(base64.b32decode(self.text.upper() + padding))
        except (ValueError, zlib.error) as error:
            raise LedgerFormatError(f"lock {self.lock_id} cannot be read ({error})") from error


@dataclass(frozen=True, slots=True)
class _Log:
    """The locks of a database at one moment.

    :param changes: the changes, by the ids of their locks.
    :param ledgers: the ledgers, by the last change that each includes.
    """

    changes: dict[int, _Entry] = field(default_factory=dict)
    ledgers: dict[int, _Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[LockRow]) -> Self:
        """Return the log that some components form; an incomplete lock is just being released."""
        log, by_lock = cls(), dict[int, list[LockRow]]()
        for row in rows:
            by_lock.setdefault(row.lock_id, []).append(row)
        for lock_id, components in by_lock.items():
            table, entry = (
                components[0].table,
                _Entry(lock_id, _text(components), components[0].since_ms),
            )
            if not entry.text:
                continue
            if table == _CHANGES:
                log.changes[lock_id] = entry
            elif match := _LEDGER.fullmatch(table):
                upto, computed_from = map(int, match.groups())
                log.ledgers[upto] = entry._replace(computed_from=computed_from)
        return log

    @property
    def is_whole(self) -> bool:
        """Whether all changes of the queue are in it: no ledger was computed from another one."""
        return not any(ledger.computed_from for ledger in self.ledgers.values())

    @property
    def piece_count(self) -> int:
        """The number of pieces of the last ledger."""
        return len(self.ledgers[max(self.ledgers)].text) // _PIECE_CHARS + 1 if self.ledgers else 0

    def last_upto(self, lock_id: int) -> int:
        """Return the last change up to a lock's that a ledger includes; 0 if there is none."""
        return max((upto for upto in self.ledgers if upto <= lock_id), default=0)

    def ledger_at(self, lock_id: int, upto: int) -> Ledger:
        """Return the ledger after the change of a lock.

        :param upto: the last change of the ledger to begin with; 0 for an empty one.
        """
        try:
            ledger = Ledger.decode(self.ledgers[upto].data) if upto else Ledger(0)
            for number in sorted(self.changes):
                if upto < number <= lock_id:
                    change = _decoded(self.changes[number].data)
                    with suppress(NodeGoneError, NodeTakenError, NodeVersionError):
                        ledger = change.apply(replace(ledger, revision=number - 1))
        except LedgerFormatError as error:
            raise ConfigurationError(
                "lease_database",
                f"its locks are no queue that this release reads: {error}",
                remedy="name another database, or run the same release of this provider everywhere",
            ) from error
        return ledger


def _digest(rows: Iterable[LockRow]) -> _Digest:
    last_id, since_ms, count = 0, 0, 0
    for row in rows:
        last_id, since_ms, count = *max((last_id, since_ms), (row.lock_id, row.since_ms)), count + 1
    return last_id, since_ms, count


def _encoded(change: Change) -> bytes:
    kind, name, data, *others = change
    values = [_FORMAT, kind, name, data.decode(errors="surrogateescape"), *others]
    return json.dumps(values, separators=(",", ":")).encode()


def _decoded(data: bytes) -> Change:
    try:
        version, kind, name, text, *others = json.loads(data)
        if version != _FORMAT:
            raise LedgerFormatError(f"a change has format {version}, this release reads {_FORMAT}")
        return Change(kind, name, text.encode(errors="surrogateescape"), *others)
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, LedgerFormatError):
            raise
        raise LedgerFormatError(f"a change cannot be read ({error})") from error


def _pieces(data: bytes) -> list[str]:
    text = base64.b32encode(zlib.compress(data, 9)).decode().rstrip("=").lower()
    parts = [text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS)]
    return [f"p{number}of{len(parts)}={part}" for number, part in enumerate(parts)]


def _text(components: Iterable[LockRow]) -> str:
    """Return the joined pieces of a lock; nothing if one is missing, or it is none of the log."""
    pieces = {}
    for match in (_PIECE.fullmatch(row.partition) for row in components):
        if match:
            pieces[int(match["number"])] = match
    if not pieces or len(pieces) != int(pieces[min(pieces)]["count"]):
        return ""
    return "".join(pieces[number]["text"] for number in sorted(pieces))
