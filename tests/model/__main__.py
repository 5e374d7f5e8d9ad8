"""``python -m tests.model --steps 200000 --seed 7``, ``--backend zookeeper --steps 10000``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.store import Store
from tests.model.checker import ViolationError
from tests.model.machine import run
from tests.model.mutants import MUTANTS
from tests.support.lease_stores import STORES, prompt_store

_CLIENTS = 4
_PROGRESS_S = 20


def main() -> int:
    """Run the steps and print the counts; return 1 for a violation."""
    arguments = _arguments()
    mutants = {mutant.__name__: mutant for mutant in MUTANTS}
    queue = mutants[arguments.mutant] if arguments.mutant else Queue
    started = time.monotonic()

    said = [started]

    def progress(counts: Counter[str]) -> None:
        if time.monotonic() - said[-1] > _PROGRESS_S:
            said.append(time.monotonic())
            print(f"{counts['steps']} steps, {counts['grants']} grants", flush=True)

    try:
        with _stores(arguments.backend) as stores:
            counts = run(
                arguments.steps,
                arguments.seed,
                stores=stores,
                line=queue,
                shrink=arguments.shrink,
                progress=progress,
            )
    except ViolationError as violation:
        print("\n".join(["VIOLATION", str(violation), *getattr(violation, "__notes__", ())]))
        return 1
    trace = counts.pop("trace")
    for what in sorted(counts):
        print(f"{counts[what]:8} {what}")
    print(f"0 violations; trace {trace:08x}; {time.monotonic() - started:.0f} s")
    return 0


@contextmanager
def _stores(backend: str) -> Iterator[list[Store] | None]:
    if backend == "memory":
        yield None
        return
    with prompt_store(backend) as open_store:
        yield [open_store() for _ in range(_CLIENTS)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--backend", choices=STORES, default="memory")
    parser.add_argument("--mutant", choices=[mutant.__name__ for mutant in MUTANTS])
    parser.add_argument("--shrink", action="store_true", help="search for fewer steps to a violation")
    return parser.parse_args()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of what is repeated
        os.environ["PYTHONHASHSEED"] = "0"
        again = [sys.executable, "-m", "tests.model", *sys.argv[1:]]
        os.execv(sys.executable, again)  # noqa: S606
    sys.exit(main())
