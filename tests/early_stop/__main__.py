"""``python -m tests.early_stop --races 100 --seed 7 --hudi 1.2.0``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from airflow_occ_provider.embedded.bundle import HUDI_VERSION
from tests.early_stop.race import Race, draw
from tests.early_stop.report import Report
from tests.early_stop.rig import Course, Rig

_PROGRESS = 25


def main() -> int:
    """Run a series; return 1 if a finding was wrong or a bound was missed."""
    arguments = _arguments()
    report, began_s = Report(), time.monotonic()
    for count, (race, ended) in enumerate(_ended(arguments), 1):
        if isinstance(ended, BaseException):
            report.add_rig_error(race, ended)
        else:
            report.add(race, ended)
            _keep(arguments.keep, race, ended)
        if count % _PROGRESS == 0:
            pace = (time.monotonic() - began_s) / count
            print(f"{count} races, {pace:.2f} s each, {len(report.problems)} problems", flush=True)
    print("\n".join(report.lines()))
    return 1 if report.failures() else 0


def _ended(arguments: argparse.Namespace) -> Iterator[tuple[Race, list[Course] | BaseException]]:
    from tests.differential.session import start_spark

    folder = Path(tempfile.mkdtemp(prefix="early_stop_"))
    try:
        rig = Rig(start_spark(arguments.hudi, folder / "spark"), arguments.hudi, folder)
        numbers = range(arguments.first, arguments.first + arguments.races)
        races = [draw(arguments.seed, number, arguments.hudi) for number in numbers]
        with ThreadPoolExecutor(arguments.jobs, "race") as pool:
            running = {pool.submit(rig.run, race): race for race in races}
            for future in as_completed(running):
                yield running[future], future.exception() or future.result()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(path: Path | None, race: Race, courses: Sequence[Course]) -> None:
    """Add a race to a file of JSON lines."""
    if path:
        content = {"race": asdict(race), "courses": [asdict(one) for one in courses]}
        with path.open("a") as file:
            file.write(json.dumps(content) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.early_stop", description=__doc__)
    parser.add_argument("--races", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--first", type=int, default=0, help="index of the first race")
    parser.add_argument("--hudi", default=HUDI_VERSION, help="release of Hudi")
    parser.add_argument("--jobs", type=int, default=3, help="races that run at a time")
    parser.add_argument("--keep", type=Path, help="file that takes each race as a line of JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
