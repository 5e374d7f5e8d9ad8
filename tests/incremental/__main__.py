"""``python -m tests.incremental --runs 50 --seed 7 --hudi 1.2.0 --table 9``.

In each run four writers and a consumer share one real table. The exit code is 0 if the consumer read
each row once, and a checkpoint by the youngest instant would have lost rows in some of the runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.differential.series import add_arguments, ended
from tests.incremental.plan import draw
from tests.incremental.rig import Rig

_SHOWN = 5


def main() -> int:
    """Run a series; return 1 if a row was lost or read twice, or the control lost none."""
    arguments, began_s = _arguments(), time.monotonic()
    wrong, rows, naive_lost, errors, windows = 0, 0, 0, 0, Counter[str]()
    numbers = range(arguments.first, arguments.first + arguments.runs)
    runs = [draw(arguments.seed, number, arguments.table) for number in numbers]
    all_ended = ended(Rig, runs, arguments.hudi, arguments.jobs)
    for count, (run, found) in enumerate(all_ended, 1):
        title = f"seed {run.seed} index {run.index} ({run.template.kind})"
        if isinstance(found, BaseException):
            print(f"{title}: RIG ERROR {found!r}", flush=True)
            wrong += 1
            continue
        if found.lost or found.doubled:
            wrong += 1
            lost, doubled = found.lost[:_SHOWN], found.doubled[:_SHOWN]
            print(f"{title}: WRONG, lost {lost}, read twice {doubled}", flush=True)
        rows += len(found.current)
        naive_lost += len(found.current) - len(found.naive)
        errors += found.errors
        windows += found.windows
        if count % 10 == 0:
            print(f"{count} runs, {(time.monotonic() - began_s) / count:.1f} s each", flush=True)
    print(
        f"{arguments.runs} runs on table version {arguments.table}, Hudi {arguments.hudi}: {wrong} wrong"
    )
    print(f"{rows} rows, {errors} writes refused; a checkpoint by instant time lost {naive_lost} rows")
    print("windows: " + ", ".join(f"{n} {kind}" for kind, n in windows.most_common()))
    return 0 if naive_lost and not wrong else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.incremental", description=__doc__)
    add_arguments(parser, "runs", 50, 2)
    parser.add_argument("--table", type=int, default=9, help="version of the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
