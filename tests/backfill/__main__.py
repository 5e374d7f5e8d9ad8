"""A backfill beside an hourly writer: ``python -m tests.backfill --days 60``.

A real Airflow backfills one table, a run for each day, so many at once, the youngest first. Until its
end another DAG writes the youngest day again and again. No task names a scope: the partition key of its
run is the scope. The exit code is 0 if each run wrote its row once, at its first try.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.storage.table import HudiTable
from tests.services.airflow import EmbeddedAirflow
from tests.services.postgres import Postgres
from tests.support.observed import until
from tests.support.results import Result, add_result
from tests.support.rows import count_rows

DAGS = Path(__file__).parent / "dags"
LAST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
_LAST_LINES = 8
_MOST_S_PER_DAY = 300
_NAME = "airflow"


class Runs:
    """The runs of the DAGs of a running Airflow."""

    def __init__(self, airflow: EmbeddedAirflow) -> None:
        self._airflow = airflow

    def write(self, dag_id: str, **more: Any) -> None:
        """Start a run, and wait for its end."""
        self._airflow.end_of(dag_id, self._airflow.trigger(dag_id, **more))

    def backfill(self, days: Sequence[str], slots: int) -> str:
        """Start a backfill; return its path in the API."""
        self._airflow.call("PATCH", "/dags/daily", {"is_paused": False})
        body = {
            "dag_id": "daily",
            "from_date": f"{days[0]}T00:00:00Z",
            "to_date": f"{days[-1]}T00:00:00Z",
            "run_backwards": True,
            "max_active_runs": slots,
        }
        return f"/backfills/{self._airflow.call('POST', '/backfills', body)['id']}"

    def has_ended(self, backfill: str) -> bool:
        """Whether all runs of a backfill have ended."""
        return self._airflow.call("GET", backfill)["completed_at"] is not None

    def of(self, dag_id: str) -> Iterable[dict[str, Any]]:
        """Return the runs of a DAG."""
        runs = self._airflow.listed(f"/dags/{dag_id}/dagRuns", "dag_runs")
        return (run for run in runs if run["partition_key"])

    def wrong(self, dag_id: str, run: dict[str, Any]) -> Iterable[str]:
        """Yield what is not as promised in a run."""
        run_id, name = run["dag_run_id"], f"{dag_id} {run['partition_key']}"
        task = self._airflow.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/write")
        log = self._airflow.log_lines(dag_id, run_id, "write", task["try_number"])
        if (task["state"], task["try_number"]) != ("success", 1):
            yield "\n  ".join(
                (f"{name}: {task['state']} at try {task['try_number']}", *log[-_LAST_LINES:])
            )
        if not any("by the run's partition key" in line for line in log):
            yield f"{name}: the partition key is not the scope"


def main() -> int:
    """Run it; return 1 if anything was wrong."""
    arguments, began_s = _arguments(), time.monotonic()
    days = [f"{LAST_DAY - timedelta(n):%Y-%m-%d}" for n in reversed(range(arguments.days))]
    with (
        tempfile.TemporaryDirectory(prefix="backfill_", ignore_cleanup_errors=True) as scratch,
        EmbeddedStack(Path(scratch) / "stack") as stack,
        Postgres(_NAME, _NAME) as database,
    ):
        table = Path(scratch) / "lake" / "daily"
        settings = {
            "BACKFILL_TABLE": str(table),
            "BACKFILL_DAYS": ",".join(days),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.address,
            "AIRFLOW__CORE__PARALLELISM": str(arguments.slots + 1),
        }
        with EmbeddedAirflow(Path(scratch) / "airflow", DAGS, stack.environment, settings) as airflow:
            airflow.add_connection("hudi_lock_default", **stack.lock_connection)
            airflow.add_connection("spark_default", conn_type="spark", host="local[1]")
            until(lambda: all(map(airflow.has_dag, ("all_days", "daily", "hourly"))), "the DAGs")
            runs = Runs(airflow)
            runs.write("all_days")
            backfill = runs.backfill(days, arguments.slots)
            deadline = time.monotonic() + _MOST_S_PER_DAY * arguments.days
            while not runs.has_ended(backfill):
                if time.monotonic() > deadline:
                    raise TimeoutError("the backfill does not end")
                runs.write("hourly", partition_key=days[-1])
            counts = {dag_id: len(list(runs.of(dag_id))) for dag_id in ("daily", "hourly")}
            wrong = [line for dag in counts for run in runs.of(dag) for line in runs.wrong(dag, run)]
        wrong += _wrong_rows(table, days, counts)
        if counts["daily"] != arguments.days or not counts["hourly"]:
            wrong.append(f"runs: {counts}")
        release = stack.hudi_version
    print("\n".join(wrong))
    print(
        f"{counts['daily']} runs of a backfill, {arguments.slots} at once, beside {counts['hourly']} of "
        f"an hourly writer: {len(wrong)} wrong; {time.monotonic() - began_s:.0f} s"
    )
    add_result(Result("backfill", release, 0, arguments.days, len(wrong), {"hourly": counts["hourly"]}))
    return 1 if wrong else 0


def _wrong_rows(table: Path, days: Sequence[str], counts: dict[str, int]) -> Iterable[str]:
    """Yield what the table has too often or not at all."""
    rows = count_rows(table)
    if repeated := [key for key, count in rows.items() if count != 1]:
        yield f"rows that are there twice: {repeated}"
    by_day = Counter(key.rpartition(" ")[2] for key in rows)
    expected = Counter(dict.fromkeys(days, 2)) + Counter({days[-1]: counts["hourly"]})
    if by_day != expected:
        yield f"rows: {by_day - expected} too many, {expected - by_day} lost"
    timeline = HudiTable(str(table)).snapshot().timeline
    if pending := [instant.time for instant in timeline.pending_writes()]:
        yield f"writes that did not commit: {pending}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.backfill", description=__doc__)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--slots", type=int, default=4, help="runs of the backfill at the same time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
