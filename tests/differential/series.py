"""Runs a series of seeded cases in one Spark session, some at a time."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from airflow_occ_provider.embedded.bundle import hudi_release

Case = TypeVar("Case")


def add_arguments(parser: argparse.ArgumentParser, cases: str, count: int, jobs: int) -> None:
    """Add the arguments of a series.

    :param cases: what is run, such as ``races``.
    :param count: how many by default.
    :param jobs: how many at a time by default.
    """
    parser.add_argument(f"--{cases}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--first", type=int, default=0, help=f"index of the first of the {cases}")
    parser.add_argument("--hudi", default=hudi_release(), help="release of Hudi")
    parser.add_argument("--jobs", type=int, default=jobs, help=f"{cases} that run at a time")


def ended(
    open_rig: Callable[[Any, str, Path], Any], cases: Sequence[Case], hudi: str, jobs: int
) -> Iterator[tuple[Case, Any]]:
    """Yield each case with the rig's result or error, in the order in which they end.

    :param open_rig: returns the rig, given the session, the release of Hudi, and a folder of its own.
    """
    from tests.differential.session import start_spark

    folder = Path(tempfile.mkdtemp(prefix="series_"))
    try:
        rig = open_rig(start_spark(hudi, folder / "spark"), hudi, folder)
        with ThreadPoolExecutor(jobs, "case") as pool:
            running = {pool.submit(rig.run, case): case for case in cases}
            for future in as_completed(running):
                yield running[future], future.exception() or future.result()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
