"""``python -m tests.faulty_s3 --runs 12 --seed 7 --percent 5``: writers whose S3 requests fail.

Each table has two writers at a time, in a real Airflow, on real Spark and Hudi. A share of all requests
to the bucket, of the drivers and of the provider, is answered with 500 or 503, late, or not at all.
Afterwards each task run has one commit, and each row is there once for each of the table's runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import RECORD_KEY
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.faults.aftermath import EXPIRY_S, make_tables, run_job
from tests.faults.command import add_reports, print_run, print_wrong
from tests.faults.rig import JOB, FaultyRun, airflow
from tests.services.versitygw import EmbeddedVersitygw
from tests.support.faulty_proxy import FaultyProxy
from tests.support.stores import BUCKET, Lake

WRITERS = 2
ROWS = 20


@dataclass(frozen=True)
class Plan:
    """One run: its name, and its table's."""

    name: str
    table: str
    victim: str = ""
    point: str = ""


class _ThroughProxy:
    """A server whose clients are given the proxy's address."""

    proxy: FaultyProxy | None = None

    @property
    def url(self):
        return self.proxy.url if self.proxy else super().url


class Versitygw(_ThroughProxy, EmbeddedVersitygw):
    """Exact conditional writes; Go builds it."""


class S3proxy(_ThroughProxy, EmbeddedS3proxy):
    """Needs Java only."""


@contextlib.contextmanager
def faulty_store(folder, seed):
    """Run an S3 server behind a proxy, which lets requests fail once its ``percent`` is set."""
    kind = Versitygw if EmbeddedVersitygw.is_available() else S3proxy
    with kind(folder) as store, FaultyProxy(store.url, seed=seed) as proxy:
        store.make_bucket(BUCKET)
        store.proxy = proxy
        yield store, proxy


class FailingRequestsRun(FaultyRun):
    """One run beside another one on the same table, while requests fail."""

    def __init__(self, running, stack, folder, plan):
        super().__init__(running, stack, folder, plan)
        self.table = self.report.table = self.lake.path(plan.table)
        self.reader = self.lake.open(self.table)

    def run(self):
        started = time.monotonic()
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - reported with all others at the end
            self.report.wrong.append(f"{type(error).__name__}: {error}")
        self.report.seconds = time.monotonic() - started
        return self.report

    def _run(self):
        conf = {"job": str(JOB), "table": self.table, "gate": str(self.gate)}
        conf["storage_conn_id"] = self.lake.conn_id
        self.run_id = self.airflow.trigger(self.dag_id, conf)
        self._path = f"/dags/{self.dag_id}/dagRuns/{self.run_id}"
        state = self._wait("the end of the run", self._ended)
        self.report.tries = self._task()["try_number"]
        if state != "success":
            self.report.wrong.append(f"the run ended as {state}: {self._last_log()}")
        self._audit()

    def _audit(self):
        store = f"{self._path}/taskInstances/write/state-store/{RECORD_KEY}"
        record = self.airflow.call("GET", store)["value"]
        snapshot = self.reader.snapshot()
        found = [snapshot.reader.commit(one) for one in snapshot.timeline.completed_writes()]
        signed = [Signature.from_extra(one.extra) for one in found if not one.is_table_service]
        own = [one.try_number for one in signed if one.identity == record["identity"]]
        if len(own) != 1:
            self.report.wrong.append(f"signed commits of tries {own}")
        left = [one["try_number"] for one in record["attempts"] if not one["settled"]]
        if left or not record["succeeded"] or record["waiting"]:
            self.report.wrong.append(f"the record is not closed: unsettled tries {left}")

    def warnings(self):
        """Return the lines of all tries that speak of storage, by their beginning."""
        lines = (
            line
            for number in range(1, self.report.tries + 1)
            for line in self.airflow.log_lines(self.dag_id, self.run_id, "write", number)
        )
        words = (
            *("InternalError", "SlowDown", "Status Code: 5", "cannot be read"),
            *("did not answer", "Retry in"),
        )
        return Counter(line[:160] for line in lines if any(word in line for word in words))


def inspect(stack, folder, plans, reports):
    """Add to the reports which rows are missing or doubled, and what is still pending."""
    time.sleep(EXPIRY_S)
    lake, answer = Lake(folder / "tables", stack.store), folder / "rows.json"
    names = dict.fromkeys(plan.table for plan in plans)
    tables = [lake.path(name) for name in names]
    run_job(stack, folder / "cleaned", "clean_and_count.py", str(answer), *tables)
    counted = json.loads(answer.read_text())
    for table in tables:
        of_table = [report for report in reports if report.table == table]
        expected = {"first": 1, **{str(number): len(of_table) for number in range(ROWS)}}
        if counted.get(table) != expected:
            of_table[0].wrong.append(f"rows {counted.get(table)}, expected {expected}")
        pending = lake.open(table).snapshot().timeline.pending_writes()
        if pending:
            of_table[0].wrong.append(f"pending after the clean: {', '.join(map(str, pending))}")


def play(args, folder):
    plans = [Plan(f"run_{n}", f"table_{n // WRITERS}") for n in range(args.runs)]
    with (
        faulty_store(folder / "store", args.seed) as (store, proxy),
        EmbeddedStack(folder / "stack", store=store) as stack,
    ):
        make_tables(stack, folder, [Plan(name, name) for name in dict.fromkeys(p.table for p in plans)])
        with airflow(folder / "airflow", stack) as running:
            runs = [FailingRequestsRun(running, stack, folder, plan) for plan in plans]
            proxy.counted()
            proxy.percent = args.percent

            def one(run):
                report = run.run()
                print_run(report)
                return report

            with ThreadPoolExecutor(WRITERS) as pool:
                reports = list(pool.map(one, runs))
            proxy.percent = 0
            print_requests(proxy)
            for line, times in sum((run.warnings() for run in runs), Counter()).most_common(30):
                print(f"  {times} x {line}")
        inspect(stack, folder, plans, reports)
    add_reports("faulty S3", reports, args.seed)
    return print_wrong(reports, args.seed)


def print_requests(proxy):
    requests = proxy.counted()
    failed = sum(proxy.faults.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(proxy.faults.items()))
    methods = Counter("LIST" if one.is_listing else one.method for one in requests)
    print(f"{len(requests)} requests ({', '.join(f'{n} {m}' for m, n in methods.most_common())})")
    print(f"{failed} failed: {kinds}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--percent", type=float, default=5.0, help="share of failing requests")
    parser.add_argument("--folder", type=Path, help="folder for all files, which is kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="airflow_occ_faulty_s3_") as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        wrong = play(args, folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
