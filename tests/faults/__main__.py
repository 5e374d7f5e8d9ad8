"""``python -m tests.faults --runs 60 --seed 7``: seeded faults; prints each run and a summary."""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.faults.aftermath import inspect, make_tables
from tests.faults.plan import draw
from tests.faults.rig import FaultyRun, airflow


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--only", default="", help="a point, victim or step of the fence")
    parser.add_argument(
        "--folder", type=Path, help="folder for all files, which is kept; by default a temporary one"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="airflow_occ_faults_") as scratch:
        wrong = play(args, args.folder or Path(scratch))
    sys.exit(1 if wrong else 0)


def play(args, folder):
    folder.mkdir(parents=True, exist_ok=True)
    faults = draw(args.runs, args.seed, only=args.only)

    def one(fault):
        report = FaultyRun(running, stack, folder, fault).run()
        verdict = "; ".join(report.wrong) or "ok"
        print(f"{fault.name}: {report.seconds:.0f} s, {report.tries} tries: {verdict}", flush=True)
        return report

    with EmbeddedStack(folder / "stack") as stack:
        make_tables(stack, folder, faults)
        with airflow(folder / "airflow", stack) as running, ThreadPoolExecutor(args.jobs) as pool:
            reports = list(pool.map(one, faults))
        inspect(stack, folder, reports)
    wrong = [report for report in reports if report.wrong]
    print(f"{len(reports)} runs, seed {args.seed}: {len(wrong)} wrong")
    for report in wrong:
        print(f"  {report.fault.name}: {'; '.join(report.wrong)}")
    return wrong


if __name__ == "__main__":
    main()
