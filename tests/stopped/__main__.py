"""Writers that are stopped around their commit: ``python -m tests.stopped --runs 200 --seed 7``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.stopped.course import Result, trials


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--controls", type=int, default=None)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ttl", type=float, default=6.0)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="stopped_", ignore_cleanup_errors=True) as scratch:
        for result in trials(
            Path(scratch), arguments.runs, arguments.seed, arguments.ttl, arguments.controls
        ):
            print(result, flush=True)
            counts[f"{'leased' if result.trial.has_life else 'control'}: {came_to(result)}"] += 1
    print(f"seed {arguments.seed}, lease of {arguments.ttl:g} s:", dict(sorted(counts.items())))
    return 1 if counts["leased: late"] else 0


def came_to(result: Result) -> str:
    if result.is_late:
        return "late"
    if result.late_s is not None:
        return "in time"
    return "refused" if "airflow_occ_provider refused" in result.error else "failed"


if __name__ == "__main__":
    sys.exit(main())
