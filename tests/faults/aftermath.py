"""After all runs: one more lazy clean of every table, then every row once and nothing left behind."""

from __future__ import annotations

import json
import time
from pathlib import Path

from airflow_occ_provider.storage.table import HudiTable
from tests.writers import Writer

JOBS = Path(__file__).parents[1] / "jobs"
ROWS = {"first": 1, **{str(number): 1 for number in range(20)}}
EXPIRY_S = 10
HEARTBEATS = {
    "hoodie.client.heartbeat.interval_in_ms": "2000",
    "hoodie.client.heartbeat.tolerable.misses": "5",
}


def make_tables(stack, folder, faults):
    """Make every table, with one commit: as most tables are that a writer finds."""
    tables = [str(folder / "tables" / fault.name) for fault in faults]
    made = Writer(
        stack, folder / "made", application=JOBS / "make_tables.py", arguments=tables, identity="first"
    )
    made.run()
    assert made.exit_code == 0, made.log[-3000:]


def inspect(stack, folder, reports):
    """Add what is wrong with the tables to the reports; tell what no procedure of Hudi's removes."""
    time.sleep(EXPIRY_S)
    written = [report for report in reports if (report.table / ".hoodie").is_dir()]
    answer = folder / "rows.json"
    tables = [str(report.table) for report in written]
    if tables:
        Writer(
            stack,
            folder / "cleaned",
            application=JOBS / "clean_and_count.py",
            arguments=(str(answer), *tables),
            hudi_options=HEARTBEATS,
        ).run()
    rows = json.loads(answer.read_text()) if answer.exists() else {}
    left = {}
    for report in written:
        found = rows.get(str(report.table))
        if found != ROWS:
            counts = sorted(set((found or {}).values()))
            report.wrong.append(f"{len(found or {})} of {len(ROWS)} rows, each {counts} times")
        for what in leftovers(report.table):
            left.setdefault(what, []).append(report.fault.name)
        pending = HudiTable(str(report.table)).snapshot().timeline.pending_writes()
        if pending:
            report.wrong.append(f"pending after the clean: {', '.join(map(str, pending))}")
    for what, names in sorted(left.items()):
        print(f"left after the clean, {len(names)} of {len(written)} tables: {what} ({names[0]}, ...)")


def leftovers(table):
    """What is in the metadata folder and no clean removes."""
    for folder, name in (
        (".hoodie/.heartbeat", "heartbeats"),
        (".hoodie/.temp", "markers"),
        (".hoodie/metadata/.hoodie/.heartbeat", "heartbeats of the metadata table"),
        (".hoodie/metadata/.hoodie/.temp", "markers of the metadata table"),
    ):
        path = table / folder
        if path.is_dir() and any(not one.name.endswith(".crc") for one in path.iterdir()):
            yield name
