"""Checks after all runs: one more lazy clean of each table, then each row once and nothing pending."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.support.stores import Lake
from tests.support.writers import Writer

JOBS = Path(__file__).parents[1] / "jobs"
ROWS = {"first": 1, **{str(number): 1 for number in range(20)}}
EXPIRY_S = 10
PORTION = 20
HEARTBEATS = {
    "hoodie.client.heartbeat.interval_in_ms": "2000",
    "hoodie.client.heartbeat.tolerable.misses": "5",
}


def make_tables(stack, folder, faults):
    """Make all tables, each with one commit, like most tables that are written."""
    lake = Lake(folder / "tables", stack.store)
    for some in _portions([lake.path(fault.name) for fault in faults]):
        run_job(stack, folder / "made", "make_tables.py", *some)


def inspect(stack, folder, reports, expected=ROWS):
    """Add the tables' errors to the reports; print what no procedure of Hudi's removes.

    :param expected: how often each row has to be there.
    """
    time.sleep(EXPIRY_S)
    lake = Lake(folder / "tables", stack.store)
    opened = {report.table: lake.open(report.table) for report in reports}
    written = [report for report in reports if opened[report.table].config().exists]
    rows = {}
    for some in _portions([report.table for report in written]):
        answer = folder / "rows.json"
        run_job(stack, folder / "cleaned", "clean_and_count.py", str(answer), *some)
        rows |= json.loads(answer.read_text())
    left = {}
    for report in written:
        found = rows.get(report.table)
        if found != expected:
            counts = sorted(set((found or {}).values()))
            report.wrong.append(f"{len(found or {})} of {len(expected)} rows, each {counts} times")
        for what in leftovers(opened[report.table]):
            left.setdefault(what, []).append(report.fault.name)
        pending = opened[report.table].snapshot().timeline.pending_writes()
        if pending:
            report.wrong.append(f"pending after the clean: {', '.join(map(str, pending))}")
    for what, names in sorted(left.items()):
        print(f"left after the clean, {len(names)} of {len(written)} tables: {what} ({names[0]}, ...)")


def run_job(stack, table, job, *arguments, conf=None):
    """Run a job that makes, cleans or repairs tables, protected as any other writer.

    It has an identity of its own: the end of a driver ends all that carries its identity on the machine.
    """
    writer = Writer(
        stack,
        table,
        application=JOBS / job,
        arguments=arguments,
        hudi_options=HEARTBEATS,
        conf=conf or {},
    )
    writer.run()
    assert writer.exit_code == 0, writer.log[-3000:]


def _portions(tables):
    return [tables[begin : begin + PORTION] for begin in range(0, len(tables), PORTION)]


def leftovers(table):
    """Return what is in the metadata folder that no clean removes."""
    for folder, name in (
        (".hoodie/.heartbeat", "heartbeats"),
        (".hoodie/.temp", "markers"),
        (".hoodie/metadata/.hoodie/.heartbeat", "heartbeats of the metadata table"),
        (".hoodie/metadata/.hoodie/.temp", "markers of the metadata table"),
    ):
        if any(not name.endswith(".crc") for name in table.files.listing(folder).names):
            yield name
