"""What lost conflicts cost: ``python -m tests.bench.conflict``.

Some writers of one table run in six ways (see ``arms``), on three workloads, on three slots of this
machine. Each round runs all ways on the same jobs, the next one in the reverse order; ``--arms`` takes
others, such as those without one of the means against lost work. ``--workloads short --arms dfl`` is
about drivers on standby. ``CHECK=1`` makes it a test.
``--smoke`` is one round of a small *hot* in four ways; ``--airflow`` runs ours on it, beside the same
writers as tasks of a real Airflow; ``--from`` reads the raw data of earlier runs.

On two idle cores a driver takes about ten seconds before its write begins. The jobs of *hot* run one
after the other at best, so they are longer than the others: else start-ups are what it measures. All
of it takes about 90 minutes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.bench.conflict import measures
from tests.bench.conflict.arms import ARMS, in_turn
from tests.bench.conflict.events import Run, read_runs, to_line
from tests.bench.conflict.goals import goals
from tests.bench.conflict.plot import plot
from tests.bench.conflict.rig import Rig
from tests.bench.conflict.summary import summaries
from tests.bench.conflict.table import table
from tests.bench.conflict.workloads import WORKLOADS, Size, jobs_of
from tests.bench.harness import Goal, conclude

OUTPUT = Path("build/bench-conflict")
SMOKE = Size(writers=3, pause_s=4.0)
USUAL = Size(writers=4, pause_s=40.0)
FULL = {
    "hot": Size(writers=3, pause_s=110.0),
    "mixed": USUAL,
    "skewed": USUAL,
    "short": Size(writers=6, pause_s=15.0),
}
USUAL_ARMS = "abcdef"
USUAL_WORKLOADS = ("hot", "mixed", "skewed")
ROWS = 20_000


def main() -> int:
    """Run the benchmark, or read one, and print what it came to."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no writer is left behind
    if arguments.airflow:
        return _beside_airflow(arguments)
    read = [run for path in arguments.read for run in read_runs(path)]
    runs = read or _measured(arguments)
    found = summaries(runs)
    print(table(found))
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "plot.svg").write_text(plot(found))
    return conclude(goals(found))


def _beside_airflow(arguments: argparse.Namespace) -> int:
    jobs = jobs_of("hot", SMOKE, arguments.seed)
    with _rig(sorted({one for job in jobs for one in job.partitions})) as rig:
        rig.prepare(jobs)
        letters = "".join(letter for letter in arguments.arms if ARMS[letter].is_scheduled)
        alone = [rig.run("hot", letter, 0, arguments.seed, jobs) for letter in letters]
        scheduled = list(rig.run_scheduled("hot", letters, 0, arguments.seed, jobs))
    for title, runs in (("Without a scheduler", alone), ("In Airflow", scheduled)):
        print(f"\n{title}", *map(_told, runs), sep="\n  ")
    wrong = sum(run.lost + run.doubled + measures.unfinished(run) for run in (*alone, *scheduled))
    return conclude([Goal("lost, doubled, given up", wrong, at_most=0, unit="")])


def _measured(arguments: argparse.Namespace) -> list[Run]:
    arguments.output.mkdir(parents=True, exist_ok=True)
    raw, runs, began_s = arguments.output / "runs.jsonl", [], time.monotonic()
    with raw.open("w") as file:
        for run in _runs(arguments):
            runs.append(run)
            file.write(to_line(run) + "\n")
            file.flush()
            print(f"{time.monotonic() - began_s:6.0f} s  {_told(run)}", flush=True)
    print(f"\nThe raw data is in {raw}.")
    return runs


def _runs(arguments: argparse.Namespace) -> Iterator[Run]:
    seed = arguments.seed
    usual = dict.fromkeys(WORKLOADS, SMOKE) if arguments.smoke else FULL
    sizes = {
        name: Size(arguments.writers or size.writers, arguments.pause or size.pause_s)
        for name, size in usual.items()
    }
    rounds = [(turn, workload) for turn in range(arguments.rounds) for workload in arguments.workloads]
    jobs = {
        (turn, workload): jobs_of(workload, sizes[workload], seed + turn) for turn, workload in rounds
    }
    partitions = sorted({one for some in jobs.values() for job in some for one in job.partitions})
    with _rig(partitions) as rig:
        for turn, workload in rounds:
            rig.prepare(jobs[turn, workload])
            for letter in in_turn(arguments.arms, turn + seed):
                yield rig.run(workload, letter, turn, seed + turn, jobs[turn, workload])


@contextmanager
def _rig(partitions: Sequence[str]) -> Iterator[Rig]:
    with (
        tempfile.TemporaryDirectory(prefix="bench_conflict_", ignore_cleanup_errors=True) as scratch,
        EmbeddedStack(Path(scratch) / "stack") as stack,
    ):
        yield Rig(Path(scratch), stack, partitions, ROWS)


def _told(run: Run) -> str:
    some, rows = measures.works(run), f"{run.lost} lost, {run.doubled} doubled"
    return (
        f"{run.workload} ({run.arm}): {measures.makespan_s(run):.0f} s, "
        f"waste {measures.waste(some):.2f}, {len(run.events)} drivers, {rows}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.conflict", description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--airflow", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--writers", type=int, help="of each workload, instead of its usual number")
    parser.add_argument("--pause", type=float, help="seconds of a usual job, instead of the workload's")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--arms", help="their letters, such as aef")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument(
        "--from", dest="read", nargs="+", default=[], type=Path, help="runs.jsonl of earlier runs"
    )
    arguments = parser.parse_args()
    arguments.arms = arguments.arms or ("adef" if arguments.smoke else USUAL_ARMS)
    arguments.workloads = arguments.workloads or (["hot"] if arguments.smoke else list(USUAL_WORKLOADS))
    if not set(arguments.arms) <= ARMS.keys():
        parser.error(f"--arms takes the letters {''.join(ARMS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
