"""``python -m tests.early_stop --races 100 --seed 7 --hudi 1.2.0``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.differential.series import add_arguments, ended
from tests.early_stop.race import Race, draw
from tests.early_stop.report import Report
from tests.early_stop.rig import Course, Rig
from tests.support.results import Result, add_result

_PROGRESS = 25


def main() -> int:
    """Run a series; return 1 if a finding was wrong or a bound was missed."""
    arguments = _arguments()
    report, began_s = Report(), time.monotonic()
    numbers = range(arguments.first, arguments.first + arguments.races)
    races = [draw(arguments.seed, number, arguments.hudi) for number in numbers]
    all_ended = ended(Rig, races, arguments.hudi, arguments.jobs)
    for count, (race, result) in enumerate(all_ended, 1):
        if isinstance(result, BaseException):
            report.add_rig_error(race, result)
        else:
            report.add(race, result)
            _keep(arguments.keep, race, result)
        if count % _PROGRESS == 0:
            pace = (time.monotonic() - began_s) / count
            print(f"{count} races, {pace:.2f} s each, {len(report.problems)} problems", flush=True)
    print("\n".join(report.lines()))
    counts = {"named": report.named, "lost": report.lost}
    rig, wrong = "early stop", len(report.problems)
    add_result(Result(rig, arguments.hudi, arguments.seed, report.races, wrong, counts))
    return 1 if report.failures() else 0


def _keep(path: Path | None, race: Race, courses: Sequence[Course]) -> None:
    """Add a race to a file of JSON lines."""
    if path:
        content = {"race": asdict(race), "courses": [asdict(one) for one in courses]}
        with path.open("a") as file:
            file.write(json.dumps(content) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.early_stop", description=__doc__)
    add_arguments(parser, "races", 100, 3)
    parser.add_argument("--keep", type=Path, help="file that takes each race as a line of JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
