"""``python -m tests.commit_runs --commits 200 --seed 7``.

Real writers commit to one table, and a real Airflow, whose triggerer is killed and restarted, starts
runs. The exit code is 0 if each commit had one run, and was in one batch.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from airflow_occ_provider.embedded.bundle import hudi_release
from tests.commit_runs.plan import draw
from tests.commit_runs.rig import STARTED, go_through, running
from tests.commit_runs.writers import Writers
from tests.differential.session import start_spark


def main() -> int:
    """Run it; return 1 if a commit had no run or two."""
    arguments, began_s = _arguments(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="commit_runs_"))
    table = folder / "table"
    try:
        writers = Writers(start_spark(hudi_release(), folder / "spark"), table, arguments.commits)
        with running(folder / "airflow", table) as rig:
            rig.begin()
            go_through(rig, writers, draw(arguments.seed, arguments.commits))
            commits = writers.commits()
            rig.wait_until_quiet(len(commits))
            wrong = [line for name in STARTED for line in _wrong(name, commits, rig.instants(name))]
            failed = [run["dag_run_id"] for run in rig.runs("start_runs") if run["state"] != "success"]
            wrong += [f"{one}: the run that starts runs failed" for one in failed]
            reported = rig.reported()
            counts = {name: len(rig.runs(name)) for name in ("on_batch", "on_event", "start_runs")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(wrong))
    twice = sum(count > 1 for count in reported.values())
    print(
        f"{len(commits)} commits in {time.monotonic() - began_s:.0f} s: {len(wrong)} wrong; "
        f"{counts['on_batch']} batches by {counts['start_runs']} runs; {twice} commits were reported "
        f"twice; a DAG with the asset as its schedule had {counts['on_event']} runs"
    )
    return 1 if wrong or len(commits) != arguments.commits else 0


def _wrong(name: str, commits: list[str], found: Counter[str]) -> list[str]:
    lost = [f"{one} is in no run of {name}" for one in commits if not found[one]]
    return [*lost, *(f"{one} is in {n} runs of {name}" for one, n in sorted(found.items()) if n > 1)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.commit_runs", description=__doc__)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
