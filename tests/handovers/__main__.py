"""``python -m tests.handovers --runs 1000 --seed 7``: leases that pass between processes."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog

from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.handovers.rig import hand_over, hand_over_in
from tests.support.lease_stores import STORES, prompt_store

_PROGRESS = 100


def main() -> int:
    """Run the cases; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.handovers", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--backend", choices=STORES, default="zookeeper")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began = time.monotonic()

    def tell(done: int) -> None:
        if done % _PROGRESS == 0:
            print(f"{done} cases, {(time.monotonic() - began) / done:.2f} s each", flush=True)

    numbers = range(given.first, given.first + given.runs)
    if given.backend == "zookeeper":
        with tempfile.TemporaryDirectory() as folder, EmbeddedZookeeper(Path(folder)) as zookeeper:
            counts, broken = hand_over(zookeeper.hosts, numbers, given.seed, tell)
    else:
        with prompt_store(given.backend) as open_store:
            counts, broken = hand_over_in(open_store, numbers, given.seed, tell)
    for name, count in sorted(counts.items()):
        print(f"{count:8,}  {name}")
    for error in broken:
        print(f"BROKEN: {error}")
    print(f"{given.runs} cases in {time.monotonic() - began:.0f} s, {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
