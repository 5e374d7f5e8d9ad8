"""What a lock service, and files beside a table, show of its locks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from airflow_occ_provider.attempts.lock_connection import LockConnection
from airflow_occ_provider.hudi.doctor.locks import LockUse, OtherLock
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER
from airflow_occ_provider.hudi.writer.storage_lock import STORAGE_LOCK_PROVIDER
from airflow_occ_provider.storage.lock_file import lock_file, lock_files_beside
from airflow_occ_provider.storage.table import HudiTable


def lock_use(lock: LockConnection, table: HudiTable, options: Mapping[str, str]) -> LockUse | None:
    """Return how often the connection's lock of a table was requested.

    Nothing is written. ZooKeeper counts requests. The file of the storage based lock is never deleted,
    and shows its last holder. A metastore, and a lock file that is deleted at each release, show
    nothing of the past.

    :param options: the lock options of the connection.
    :returns: ``None`` if the lock shows nothing.
    :raises LockUnreachableError: if the lock service does not answer in time.
    :raises ConfigurationError: if it denies access.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    provider = options.get(LOCK_PROVIDER)
    if provider == STORAGE_LOCK_PROVIDER:
        file = lock_file(table, options)
        return None if file is None or file.held else LockUse(file.path, 0, file.last_ms or 0)
    if provider != ZOOKEEPER_LOCK_PROVIDER:
        return None
    view = lock.commit_lock(table.path, table.config().name)
    if view is None:
        return None
    with closing(view):
        times = view.times_requested()
        return None if times is None else LockUse(view.path, times, view.counted_since_ms())


def other_locks(table: HudiTable, options: Mapping[str, str]) -> Iterator[OtherLock]:
    """Yield the lock files beside a table that are not the connection's.

    :param options: the lock options of the connection.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    our_file = lock_file(table, options)
    for file in lock_files_beside(table):
        if file.last_ms is not None and (our_file is None or file.path != our_file.path):
            yield OtherLock(file.path, file.last_ms)
