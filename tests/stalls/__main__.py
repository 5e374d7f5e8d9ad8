"""The store stalls under a live writer: ``python -m tests.stalls --seconds 180``.

Once with a writer that still reads its source, and once with one that wants to write meanwhile.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.stalls.course import stall


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout, force=True)
    logging.getLogger("writer").setLevel(logging.INFO)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="stalls_", ignore_cleanup_errors=True) as scratch:
        for writes in (False, True):
            with EmbeddedStack() as stack:
                folder = Path(scratch) / str(writes)
                writer = stall(
                    stack,
                    folder,
                    arguments.interval_ms,
                    arguments.misses,
                    arguments.seconds,
                    writes_meanwhile=writes,
                )
            found = writer.settlement
            assert found is not None
            fine = writer.stop is None and found.outcome is Outcome.COMMITTED
            wrong += not fine
            print(
                f"{'writing' if writes else 'reading its source'}, stalled for {arguments.seconds:g} s: "
                f"{'not ended' if writer.stop is None else 'ENDED'}, {found.outcome}, "
                f"exit code {writer.exit_code}; Hudi said:",
                *(line.rstrip() for line in writer.lines if "eartbeat" in line and "\tat " not in line),
                sep="\n  ",
                flush=True,
            )
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--interval-ms", type=int, default=60_000)
    parser.add_argument("--misses", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
