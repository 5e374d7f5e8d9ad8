"""``airflow hudi top``: a table's writers, its queue and its dead writers, live."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from airflow_occ_provider.cli.output import Rows, print_described, task_text
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.errors import LockUnreachableError, TableUnreadableError
from airflow_occ_provider.hooks.hudi_lock import lock_hook_if_any
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.reading.described import describe
from airflow_occ_provider.reading.overview import read_state
from airflow_occ_provider.spelling import spell_expiry, spell_span, spell_time
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.task.database import task_states, writing_tasks

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
            described, _ = read(None)
            print_described(described, args.output, partial(_print_text, described))
        else:
            _watch(read, args.every)


_Described: TypeAlias = dict[str, Any]
_Read = Callable[[Snapshot | None], tuple[_Described, Snapshot]]


def _watch(read: _Read, every_s: float) -> None:
    """Show each state until interrupted; if there is none, the last one with the reason."""
    last = snapshot = None
    console = Console(markup=False, emoji=False)
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            why = ""
            try:
                last, snapshot = read(snapshot)
            except (TableUnreadableError, LockUnreachableError) as error:
                why = str(error)
            live.update(_screen(last, why), refresh=True)
            time.sleep(every_s)


def _read(
    table: HudiTable, leases: Queue | None, minutes: float, previous: Snapshot | None
) -> tuple[_Described, Snapshot]:
    since_ms = round((time.time() - minutes * 60) * 1000)
    queue = leases.requests() if leases else None
    state, snapshot = read_state(table, queue, since_ms, previous=previous)
    state = state.signed(writing_tasks(snapshot.path, state.unsigned))
    states = task_states(line.queued.request.owner for line in state.queue or ())
    return describe(state, states), snapshot


def _print_text(described: _Described, show: Callable[[Rows], None]) -> None:
    for title, rows in _parts(described):
        print(title)
        show(rows)


def _screen(described: _Described | None, why: str) -> RenderableType:
    parts: list[RenderableType] = [Text(why, style="bold")] if why else []
    for title, rows in _parts(described) if described else ():
        table = Table(title=Text(title), title_justify="left", expand=True)
        for name in rows[0]:
            table.add_column(Text(name))
        for row in rows:
            table.add_row(*map(Text, row.values()))
        parts.append(table)
    return Group(*parts)


def _parts(described: _Described) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the titles with their rows; the first one says what the table comes to."""
    yield described["table"], [_summary(described)]
    for title, key, row in (
        ("Queue", "queue", _line),
        ("Writers", "writers", _writer),
        ("Pending table services", "services", _service),
        (f"The last {_LAST} instants", "instants", _instant),
    ):
        if entries := described[key]:
            yield title, list(map(row, entries[-_LAST:] if key == "instants" else entries))


def _summary(described: _Described) -> dict[str, str]:
    queue, dead = described["queue"], described["dead"]
    return {
        "at": spell_time(described["at_ms"]),
        "writing": str(len(described["writers"]) - dead),
        "waiting": "-" if queue is None else str(sum(not line["holds"] for line in queue)),
        "dead": str(dead),
        "in vain": spell_span(described["lost_ms"]),
    }


def _line(line: dict[str, Any]) -> dict[str, str]:
    blockers = [f"waits for {blocker}" for blocker in line["waits_for"]]
    if line["waits_for_more"]:
        blockers.append(f"and {line['waits_for_more']} more")
    task = [f"task: {line['task_state']}"] if line["task_state"] else []
    return {
        "place": str(line["place"]),
        "owner": line["owner"]["text"],
        "state": "\n".join([*(blockers or ["holds"]), *task]),
        "since": "\n".join((spell_time(line["since_ms"]), *line["renewal"])),
        "scope": "\n".join(line["scopes"]),
    }


def _writer(writer: dict[str, Any]) -> dict[str, str]:
    return {
        "instant": writer["instant"],
        "operation": writer["kind"],
        "task": task_text(writer),
        "state": writer["state"],
        "heartbeat": f"{writer['fate']}{_margin(writer['margin_ms'])}",
        "partitions": _some(writer),
        "verdict": writer["sentence"],
    }


def _margin(margin_ms: int | None) -> str:
    return "" if margin_ms is None else f", {spell_expiry(margin_ms)}"


def _service(service: dict[str, Any]) -> dict[str, str]:
    age_ms = service["age_ms"]
    return {
        "instant": service["instant"],
        "action": service["action"],
        "state": service["state"],
        "age": "-" if age_ms is None else spell_span(age_ms),
        "partitions": _some(service),
    }


def _instant(bar: dict[str, Any]) -> dict[str, str]:
    ended_ms = bar["ended_ms"]
    return {
        "instant": bar["instant"],
        "operation": bar["kind"],
        "fate": "table service" if bar["fate"] == "gone" else bar["fate"],
        "took": "-" if ended_ms is None else spell_span(ended_ms - bar["begun_ms"]),
        "task": task_text(bar),
    }


def _some(described: dict[str, Any]) -> str:
    left_out = described["partitions_left_out"]
    return "\n".join([*described["partitions"], *([f"and {left_out} more"] if left_out else [])]) or "-"
