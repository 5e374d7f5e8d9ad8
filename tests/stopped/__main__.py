"""Writers that are stopped around their commit: ``python -m tests.stopped --runs 200 --seed 7``."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.stopped.course import Result, Window, trials
from tests.support.stores import LOCAL, STORES, Lake, started_store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--controls", type=int, default=None)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ttl", type=float, default=6.0)
    parser.add_argument("--store", choices=[LOCAL, *STORES], default=LOCAL)
    parser.add_argument("--lanes", type=int, default=2)
    arguments = parser.parse_args()
    controls = arguments.runs if arguments.controls is None else arguments.controls
    with (
        tempfile.TemporaryDirectory(prefix="stopped_", ignore_cleanup_errors=True) as scratch,
        started_store(arguments.store, Path(scratch) / "store") as store,
    ):
        os.environ.update(store.environment if store else {})
        lake = Lake(Path(scratch), store)
        windows, results = trials(
            lake, arguments.runs, controls, arguments.seed, arguments.ttl, arguments.lanes
        )
    print(f"{arguments.store}, seed {arguments.seed}, lease of {arguments.ttl:g} s")
    return judge(windows, results)


def judge(windows: Sequence[Window], results: Sequence[Result]) -> int:
    """Print what came of the trials; return 1 if one broke what is promised."""
    steps_ms = [1000 * step_s for window in windows for step_s in window]
    longest_ms = max(steps_ms)
    print(
        f"From the check to the storage's answer, {len(steps_ms)} times:"
        f" median {statistics.median(steps_ms):.1f} ms,"
        f" 95 % {statistics.quantiles(steps_ms, n=20)[-1]:.1f} ms, longest {longest_ms:.1f} ms"
    )
    for arm in sorted({result.trial.arm for result in results}):
        of_arm = [result for result in results if result.trial.arm == arm]
        commits_s = sorted(result.late_s for result in of_arm if result.late_s is not None)
        print(f"{arm}: {len(of_arm)} runs,", dict(Counter(came_to(result) for result in of_arm)))
        if commits_s:
            p95_s = commits_s[int(0.95 * (len(commits_s) - 1))]
            print(f"  after the lease's end: 95 % {p95_s:+.3f} s, latest {commits_s[-1]:+.3f} s")
    leased = [result for result in results if result.trial.has_life]
    late = [result for result in leased if result.is_late]
    outside = [result for result in late if result.shown_s * 1000 > longest_ms]
    after_end = [result for result in leased if result.is_after_end]
    print(
        f"late: {len(late)}, of them outside the window: {len(outside)}; after an end: {len(after_end)}"
    )
    return 1 if outside or after_end else 0


def came_to(result: Result) -> str:
    if result.is_late:
        return "late"
    if result.late_s is not None:
        return "in time"
    return "refused" if "airflow_occ_provider refused" in result.error else "failed"


if __name__ == "__main__":
    sys.exit(main())
