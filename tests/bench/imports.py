"""What importing the pure core costs: ``python -m tests.bench.imports``; ``CHECK=1`` makes it a test.

Whole processes are timed, against one that imports nothing, with bytecode in a cache as after an
installation. The fastest start of each counts: slower ones are due to the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pkgutil import walk_packages

import airflow_occ_provider.hudi as pure
from tests.bench.harness import Competitor, Goal, conclude, race, show

ROUNDS = 40


def start(code: str, environment: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def main() -> int:
    modules = [one.name for one in walk_packages(pure.__path__, f"{pure.__name__}.")]
    every = ", ".join(modules)
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        bare, standard, ours = (
            Competitor(name, partial(start, code, environment))
            for name, code in {
                "python": "pass",
                "python, and the standard library's dataclasses": "import dataclasses",
                f"python, and airflow_occ_provider.hudi ({len(modules)} modules)": f"import {every}",
            }.items()
        )
        times = race([bare, standard, ours], ROUNDS)
    show("Start of a process", times)
    costs = {name: 1e3 * (min(took) - min(times[bare.name])) for name, took in times.items()}
    return conclude(
        [
            Goal("airflow_occ_provider.hudi over bare Python", costs[ours.name], at_most=30, unit="ms"),
            Goal("of which dataclasses", costs[standard.name], unit="ms"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
