"""Writers of several releases on one table: ``python -m tests.mixed --fleet 0.15.0+1.0.2 --runs 30``.

Two tasks write rows of their own into one partition, or each into its own, and try again as long as a
conflict is told. ``--fleet java`` has a task beside Hudi's client for Java, which knows nothing of this
provider but has Hudi's lock; the controls are the same without it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.mixed.java_writer import RELEASE as JAVA_RELEASE
from tests.mixed.rig import JAVA_BESIDE, JavaRaces, Races
from tests.support.results import Result, add_result

FLEETS = ("0.15.0+1.0.2", "1.0.2+1.2.0", "java")


def main() -> int:
    arguments = _arguments()
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mixed_", ignore_cleanup_errors=True) as scratch,
        EmbeddedStack(Path(scratch) / "stack") as stack,
    ):
        folder = arguments.folder or Path(scratch)
        if arguments.fleet == "java":
            hudi = f"{JAVA_BESIDE}+{JAVA_RELEASE}"
            with JavaRaces(stack, folder) as races:
                wrong = sum(races.run(arguments.seed, n) for n in range(arguments.runs))
                counts = {"told": races.told.total()}
                lost = sum(races.run(arguments.seed, n, locked=False) for n in range(arguments.controls))
            counts |= {"without the lock": arguments.controls, "of these lost rows": lost}
            counts |= {"harmed": races.harmed, "named by the doctor": races.named}
            wrong += races.harmed - races.named
        else:
            hudi = arguments.fleet
            with Races(stack, folder, hudi.split("+")) as of_releases:
                wrong = sum(of_releases.run(arguments.seed, n) for n in range(arguments.runs))
                counts = dict(of_releases.told)
    rig = "mixed fleet, without Spark" if arguments.fleet == "java" else "mixed fleet"
    add_result(Result(rig, hudi, arguments.seed, arguments.runs, wrong, counts))
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{hudi}: {arguments.runs} races, {wrong} wrong; {told}; {time.monotonic() - started:.0f} s")
    return 1 if wrong or counts.get("harmed") == 0 else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mixed", description=__doc__)
    parser.add_argument("--fleet", default=FLEETS[0], help="releases joined by +, the older first; java")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--controls", type=int, default=5, help="of java, also without the lock")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where tables and logs stay")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
