"""``python -m tests.differential --pairs 100 --seed 7 --hudi 1.2.0``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from airflow_occ_provider.embedded.bundle import hudi_release
from tests.differential.observation import FILE_NAME, Observation, load
from tests.differential.pairs import Pair, draw
from tests.differential.predict import predict
from tests.differential.report import Report
from tests.support.results import Result, add_result

_PROGRESS = 25
Seen = tuple[Pair, Observation | Exception]


def main() -> int:
    """Run, record or replay pairs; return 1 after a mismatch, a rig error or a missed bound."""
    arguments = _arguments()
    report, started = Report(), time.monotonic()
    for count, (pair, seen) in enumerate(_observe(arguments), 1):
        if isinstance(seen, Exception):
            report.add_rig_error(pair, seen)
        else:
            report.add(seen, None if arguments.record_only else predict(seen))
        if count % _PROGRESS == 0:
            pace = (time.monotonic() - started) / count
            print(f"{count} pairs, {pace:.2f} s each, {len(report.problems)} problems", flush=True)
    print("\n".join(report.lines()))
    unbounded = arguments.record_only or arguments.slice
    failures = [failure for failure in report.failures() if not unbounded or "wanted" not in failure]
    if not arguments.record_only:
        rig = "differential"
        add_result(Result(rig, arguments.hudi, arguments.seed, report.total, len(report.problems)))
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--first", type=int, default=0, help="index of the first pair")
    parser.add_argument("--hudi", default=hudi_release(), help="release of Hudi")
    parser.add_argument("--jobs", type=int, default=2, help="pairs that run at a time")
    parser.add_argument(
        "--keep", type=Path, help="folder that keeps the observations, so that a run can be resumed"
    )
    parser.add_argument("--record-only", action="store_true", help="predict nothing")
    parser.add_argument(
        "--slice", action="store_true", help="do not check bounds on shares, for a run of few pairs"
    )
    parser.add_argument("--replay", type=Path, help="predict from a folder that --keep left")
    return parser.parse_args()


def _observe(arguments: argparse.Namespace) -> Iterator[Seen]:
    if arguments.replay:
        for path in sorted(arguments.replay.glob(f"*/{FILE_NAME}")):
            observation = load(path)
            yield observation.pair, observation
        return
    folder = Path(tempfile.mkdtemp(prefix="differential_"))
    try:
        yield from _run(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(arguments: argparse.Namespace, folder: Path) -> Iterator[Seen]:
    from tests.differential.rig import Rig
    from tests.differential.session import start_spark

    spark = start_spark(arguments.hudi, folder / "spark")
    rig = Rig(spark, arguments.hudi, folder, arguments.jobs)
    keep: Path = arguments.keep or folder / "kept"

    def run(pair: Pair) -> Observation:
        known = _kept(keep, pair)
        if known is not None:
            return known
        observation = rig.run(pair, keep / f"{pair.seed}-{pair.index}")
        observation.save()
        return observation

    indexes = range(arguments.first, arguments.first + arguments.pairs)
    pairs = [draw(arguments.seed, index, arguments.hudi) for index in indexes]
    threads = ThreadPoolExecutor(arguments.jobs)
    try:
        running = {threads.submit(run, pair): pair for pair in pairs}
        for future in as_completed(running):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            yield running[future], error or future.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _kept(keep: Path, pair: Pair) -> Observation | None:
    """Return an earlier run's observation of the same pair, so that a run can be resumed."""
    path = keep / f"{pair.seed}-{pair.index}" / FILE_NAME
    known = load(path) if path.is_file() else None
    return known if known and known.pair == pair else None


if __name__ == "__main__":
    sys.exit(main())
