"""``airflow hudi locks``: Hudi's commit lock, and the test of a connection."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.cli.output import Rows, print_described
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.spelling import spell_time
from airflow_occ_provider.storage.lock_file import LockFile, lock_file

if TYPE_CHECKING:
    from airflow_occ_provider.leases.commit_lock import CommitLock

_FREE = "The lock is free."
_UNSEEN = "the holder of this provider's lock is not visible"
_TIMES = (
    "Times are those of the requests: a holder may have waited first. The ages compare the lock's clock "
    "with this machine's, so they are approximate."
)


@exit_on_error
def locks_test(args: argparse.Namespace) -> None:
    """Test a lock connection, and print what the test has shown."""
    answers, message = lock_hook(args.lock_conn_id).test_connection()
    if not answers:
        raise SystemExit(f"airflow hudi locks test: {args.lock_conn_id}: {message}")
    print(f"{args.lock_conn_id}: {message}")


@exit_on_error
def locks_show(args: argparse.Namespace) -> None:
    """Print the holder and the waiters."""
    described = _described(args)
    print_described(described, args.output, partial(_print_text, described))


def _described(args: argparse.Namespace) -> dict[str, Any]:
    table = HudiTableHook(args.table, args.conn_id, timeout_s=args.timeout)
    lock_key = args.lock_key or table.snapshot().config.name
    hook = lock_hook(args.lock_conn_id)
    options = hook.options(args.table)
    base: dict[str, Any] = {"provider": options[LOCK_PROVIDER], "path": None, "seen": True}
    base |= {"holder": None, "waiters": [], "times_taken": None}
    commit_lock = hook.commit_lock(args.table, lock_key)
    if commit_lock:
        return {**base, "path": commit_lock.path, **_in_service(commit_lock)}
    file = lock_file(table.get_conn(), options)
    return {**base, **_in_file(file)} if file else {**base, "seen": False}


def _in_service(commit_lock: CommitLock) -> dict[str, Any]:
    with closing(commit_lock):
        entries = commit_lock.entries()
        times_taken = commit_lock.times_requested()
    holders, waiters = (
        [_request(entry.owner, entry.since_ms, None) for entry in entries if entry.held is held]
        for held in (True, False)
    )
    return {"holder": next(iter(holders), None), "waiters": waiters, "times_taken": times_taken}


def _in_file(file: LockFile) -> dict[str, Any]:
    holder = _request(file.owner, file.since_ms, file.until_ms) if file.held else None
    return {"path": file.path, "holder": holder}


def _request(owner: str, since_ms: int | None, until_ms: int | None) -> dict[str, Any]:
    age_ms = None if since_ms is None else max(0, round(time.time() * 1000) - since_ms)
    return {"owner": owner or None, "since_ms": since_ms, "age_ms": age_ms, "until_ms": until_ms}


def _print_text(described: dict[str, Any], show: Callable[[Rows], None]) -> None:
    print(f"{described['provider']}: {described['path'] or _UNSEEN}")
    holder = described["holder"]
    waiters = [_row("waits", waiter) for waiter in described["waiters"]]
    if holder or waiters:
        show([*([_row("holds", holder)] if holder else []), *waiters])
        print(_TIMES)
    elif described["seen"]:
        print(_FREE)
    if described["times_taken"] is not None:
        print(f"The lock was requested {described['times_taken']} times.")


def _row(state: str, request: dict[str, Any]) -> dict[str, str]:
    since, until, age = request["since_ms"], request["until_ms"], request["age_ms"]
    row = {"state": state, "owner": request["owner"] or "unknown"}
    row["since"] = "unknown" if since is None else spell_time(since)
    row["for about"] = "-" if age is None else f"{age / 1000:.0f} s"
    return {**row, "expires": spell_time(until)} if until is not None else row
