"""The tasks behind the writes that a command shows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import closing

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.errors import MetadataCorruptError, OccError
from airflow_occ_provider.hooks.hudi_lock import lock_hook_if_any
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.reading.table_state import announced_writes
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.task.database import writing_tasks


def signers(args: argparse.Namespace, snapshot: Snapshot, times: Iterable[str]) -> dict[str, Signature]:
    """Return the known tasks of some writes, by requested time.

    A completed write has its task's signature. A pending one has none: Airflow's database names its
    task, or the queue does. The queue is asked only for what the database does not know.

    :param args: with the lock connection, as given.
    :param times: requested times.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    wanted = set(times)
    instants = [instant for instant in snapshot.timeline if instant.time in wanted]
    signatures = {instant.time: _signature(snapshot, instant) for instant in instants}
    tasks = {time: signature for time, signature in signatures.items() if signature}
    tasks |= writing_tasks(snapshot.path, wanted - tasks.keys())
    if {instant.time for instant in instants if not instant.completed} - tasks.keys():
        tasks = _announced(args, snapshot.path) | tasks
    return {time: tasks[time] for time in wanted & tasks.keys()}


def _signature(snapshot: Snapshot, instant: Instant) -> Signature | None:
    if not (instant.is_write and instant.completed):
        return None
    try:
        metadata = snapshot.reader.commit(instant)
    except MetadataCorruptError:
        return None  # the name of a task is not what the command is about
    return Signature.from_extra(metadata.extra) if metadata else None


def _announced(args: argparse.Namespace, table: str) -> dict[str, Signature]:
    try:
        hook = lock_hook_if_any(args.lock_conn_id)
        if hook is None:
            return {}
        with closing(hook.leases()) as service:
            return announced_writes(table, service.requests(table))
    except OccError as error:
        if args.lock_conn_id:
            raise
        print(f"Warning: the queue names no task: {error.message}", file=sys.stderr)
        return {}
