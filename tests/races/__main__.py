"""Races of writers: ``python -m tests.races --runs 50 --seed 7``.

Every kind runs with leases, and as a control without them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from airflow_occ_provider.embedded.bundle import hudi_release
from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.differential.session import start_spark
from tests.races.scenarios import (
    Course,
    LongDelete,
    increments,
    long_delete,
    merges,
    same_new_keys,
    scopes,
)
from tests.support.results import Result, add_result
from tests.support.stores import LOCAL, LOCKS, STORES, Lake, started_store

KINDS = {"keys": same_new_keys, "increments": increments, "merge": merges, "scopes": scopes}


def main() -> int:
    arguments = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="races_", ignore_cleanup_errors=True) as scratch,
        started_store(arguments.store, Path(scratch) / "store") as store,
        EmbeddedStack(Path(scratch) / "stack", lock=arguments.lock, store=store) as stack,
    ):
        folder = Path(scratch)
        spark = start_spark(hudi_release(), folder / "spark", store)
        course = Course(spark, stack, Lake(folder, store))
        wrong = 0
        for kind in arguments.kinds:
            if kind == "delete":
                seen = long_delete(course, times=8, every=2) if arguments.slice else long_delete(course)
                wrong += _delete(seen, is_slice=arguments.slice)
            else:
                wrong += _race(course, kind, arguments)
    return 1 if wrong else 0


def _race(course: Course, kind: str, arguments: argparse.Namespace) -> int:
    bad = {True: 0, False: 0}
    conflicts = {True: 0, False: 0}
    started = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        for guarded in (True, False):
            if not guarded and seed >= arguments.seed + arguments.controls:
                continue
            result = KINDS[kind](course, seed, guarded=guarded)
            bad[guarded] += bool(result.bad)
            conflicts[guarded] += result.conflicts
            if result.bad and guarded:
                print(f"{kind} {seed}, WRONG: {result.bad}", flush=True)
    counts = {"controls": min(arguments.controls, arguments.runs), "controls wrong": bad[False]}
    result = Result(f"races {kind}", hudi_release(), arguments.seed, arguments.runs, bad[True], counts)
    add_result(result)
    print(
        f"{kind}: {arguments.runs} runs under leases, {bad[True]} wrong, {conflicts[True]} conflicts; "
        f"{min(arguments.controls, arguments.runs)} controls, {bad[False]} wrong, "
        f"{conflicts[False]} conflicts; {time.monotonic() - started:.0f} s",
        flush=True,
    )
    # A control that never goes wrong proves nothing.
    return bad[True] + (bad[False] == 0)


def _delete(seen: LongDelete, *, is_slice: bool) -> int:
    delete, tries = seen.delete, len(seen.delete.tries_s)
    print(
        f"delete: committed at try {tries}, tries of {', '.join(f'{s:.1f}' for s in delete.tries_s)} s; "
        f"{len(seen.upserts)} upserts of {seen.usual_s:.1f} s, the latest {seen.latest_s:.1f} s late, "
        f"{sum(one.conflicts for one in seen.upserts)} conflicts of theirs; {seen.bad or 'all correct'}",
        flush=True,
    )
    late = seen.latest_s > delete.tries_s[-1] and not is_slice
    return bool(seen.bad) + (tries > 2) + late


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.races", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--controls", type=int, default=10, help="of the runs, also without leases")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--slice", action="store_true", help="no bound on seconds: other tests run beside it"
    )
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, "delete"])
    parser.add_argument("--store", choices=(LOCAL, *STORES), default=LOCAL)
    parser.add_argument("--lock", choices=LOCKS, default=LOCKS[0])
    arguments = parser.parse_args()
    is_local = arguments.store == LOCAL
    arguments.kinds = arguments.kinds or [*KINDS, *(["delete"] if is_local else [])]
    if "delete" in arguments.kinds and not is_local:
        parser.error("--kinds delete stops its writers by latches, which only the local disk has")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
