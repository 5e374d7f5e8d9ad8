"""What the commands of the fault rigs share: their arguments, and what they print."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from airflow_occ_provider.embedded.bundle import hudi_release
from tests.support.results import Result, add_result


def main(description, only, play, **choices):
    """Read the arguments, play the faults, and exit with 1 if anything was wrong.

    :param only: help of the argument that selects faults.
    :param choices: further arguments with their values, of which the first is the default.
    :param play: given the arguments and a folder; returns what was wrong.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--only", default="", help=only)
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values, default=values[0])
    parser.add_argument(
        "--folder", type=Path, help="folder for all files, which is kept; by default a temporary one"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="airflow_occ_faults_") as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        wrong = play(args, folder)
    sys.exit(1 if wrong else 0)


def print_run(report, facts=""):
    verdict = "; ".join(report.wrong) or "ok"
    print(
        f"{report.fault.name}: {report.seconds:.0f} s, {report.tries} tries{facts}: {verdict}",
        flush=True,
    )


def add_reports(rig, reports, seed):
    """Add the reports of all runs to the results."""
    wrong = sum(bool(report.wrong) for report in reports)
    add_result(Result(rig, hudi_release(), seed, len(reports), wrong))


def print_wrong(reports, seed):
    """Print a summary, and return the reports of wrong runs."""
    wrong = [report for report in reports if report.wrong]
    print(f"{len(reports)} runs, seed {seed}: {len(wrong)} wrong")
    for report in wrong:
        print(f"  {report.fault.name}: {'; '.join(report.wrong)}")
    return wrong
