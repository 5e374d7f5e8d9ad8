"""``airflow hudi top``: a table's writers, its queue and its dead writers, live."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from airflow_occ_provider.attempts.overview.described import MOST_BLOCKERS, describe
from airflow_occ_provider.attempts.overview.read import read_state
from airflow_occ_provider.attempts.overview.renewal import renewal
from airflow_occ_provider.attempts.overview.values import QueueLine, TableState
from airflow_occ_provider.cli.output import Rows, print_described
from airflow_occ_provider.cli.table import exit_on_error, format_time
from airflow_occ_provider.errors import LockUnreachableError, TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hooks.lock import lock_hook_if_any
from airflow_occ_provider.leases.lease import LeaseService
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_LAST = 10


@exit_on_error
def top(args: argparse.Namespace) -> None:
    """Show the table until interrupted, or once if the output is no terminal."""
    table = HudiTableHook(args.table, args.conn_id, timeout_s=args.timeout).get_conn()
    with ExitStack() as stack:
        lock = lock_hook_if_any(args.lock_conn_id)
        leases = stack.enter_context(closing(lock.leases())) if lock else None
        read = partial(_read, table, leases, args.minutes)
        if args.once or args.output != "table" or not sys.stdout.isatty():
            state, _ = read(None)
            print_described(describe(state), args.output, partial(_print_text, state))
        else:
            _watch(read, args.every)


_Read = Callable[[Snapshot | None], tuple[TableState, Snapshot]]


def _watch(read: _Read, every_s: float) -> None:
    """Show each state until interrupted; if there is none, the last one with the reason."""
    last = seen = None
    console = Console(markup=False, emoji=False)
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            why = ""
            try:
                last, seen = read(seen)
            except (TableUnreadableError, LockUnreachableError) as error:
                why = str(error)
            live.update(_screen(last, why), refresh=True)
            time.sleep(every_s)


def _read(
    table: HudiTable, leases: LeaseService | None, minutes: float, previous: Snapshot | None
) -> tuple[TableState, Snapshot]:
    since_ms = round((time.time() - minutes * 60) * 1000)
    queue = leases.requests() if leases else None
    return read_state(table, queue, since_ms, previous=previous)


def _print_text(state: TableState, show: Callable[[Rows], None]) -> None:
    for title, rows in _parts(state):
        print(title)
        show(rows)


def _screen(state: TableState | None, why: str) -> RenderableType:
    parts: list[RenderableType] = [Text(why, style="bold")] if why else []
    for title, rows in _parts(state) if state else ():
        table = Table(title=Text(title), title_justify="left", expand=True)
        for name in rows[0]:
            table.add_column(Text(name))
        for row in rows:
            table.add_row(*map(Text, row.values()))
        parts.append(table)
    return Group(*parts)


def _parts(state: TableState) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the titles with their rows; the first one says what the table comes to."""
    described = describe(state)
    yield state.table, [_summary(state)]
    if state.queue:
        yield "Queue", [_line(line, state.at_ms) for line in state.queue]
    for title, key, row in (
        ("Writers", "writers", _writer),
        ("Pending table services", "services", _service),
        (f"The last {_LAST} instants", "instants", _instant),
    ):
        if found := described[key]:
            yield title, list(map(row, found[-_LAST:] if key == "instants" else found))


def _summary(state: TableState) -> dict[str, str]:
    dead = len(state.dead)
    return {
        "at": format_time(state.at_ms),
        "writing": str(len(state.writers) - dead),
        "waiting": "-" if state.queue is None else str(len(state.waiting)),
        "dead": str(dead),
        "in vain": f"{state.lost_ms / 1000:.0f} s",
    }


def _line(line: QueueLine, at_ms: int) -> dict[str, str]:
    blockers = [f"waits for {one}" for one in line.waits_for[:MOST_BLOCKERS]]
    more = len(line.waits_for) - len(blockers)
    return {
        "place": str(line.place),
        "owner": str(line.queued.request.owner),
        "state": "\n".join([*blockers, *([f"and {more} more"] if more else [])]) or "holds",
        "since": "\n".join((format_time(line.queued.since_ms), *renewal(line.queued, at_ms))),
        "scope": "\n".join(map(str, line.queued.request.scopes)),
    }


def _writer(writer: dict[str, Any]) -> dict[str, str]:
    return {
        "instant": writer["instant"],
        "operation": writer["kind"],
        "state": writer["state"],
        "heartbeat": f"{writer['fate']}{_margin(writer['margin_ms'])}",
        "partitions": _some(writer),
        "verdict": writer["sentence"],
    }


def _margin(margin_ms: int | None) -> str:
    if margin_ms is None:
        return ""
    seconds = f"{abs(margin_ms) / 1000:.0f} s"
    return f", {seconds} left" if margin_ms > 0 else f", expired {seconds} ago"


def _service(service: dict[str, Any]) -> dict[str, str]:
    age_ms = service["age_ms"]
    return {
        "instant": service["instant"],
        "action": service["action"],
        "state": service["state"],
        "age": "-" if age_ms is None else f"{age_ms / 1000:.0f} s",
        "partitions": _some(service),
    }


def _instant(bar: dict[str, Any]) -> dict[str, str]:
    by, ended_ms = bar["writer"], bar["ended_ms"]
    return {
        "instant": bar["instant"],
        "operation": bar["kind"],
        "fate": "table service" if bar["fate"] == "gone" else bar["fate"],
        "took": "-" if ended_ms is None else f"{(ended_ms - bar['begun_ms']) / 1000:.0f} s",
        "writer": f"{by['dag_id']} / {by['task_id']}" if by else "-",
    }


def _some(described: dict[str, Any]) -> str:
    left_out = described["partitions_left_out"]
    return "\n".join([*described["partitions"], *([f"and {left_out} more"] if left_out else [])]) or "-"
