"""``python -m tests.crowd --seconds 600 --seed 7``: leases on a real metastore, many clients at once.

``--postgres`` keeps the locks in PostgreSQL, ``--memory`` in memory; by default they are in Derby.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path

from airflow_occ_provider.embedded.metastore import EmbeddedMetastore
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks
from tests.crowd.locks import MemoryLocks
from tests.crowd.mutants import MUTANTS
from tests.crowd.run import run
from tests.crowd.witness import ViolationError
from tests.services.postgres_metastore import metastore_on_postgres

LIFETIME_S, TTL_S = 60, 6


def main() -> int:
    """Run the clients; raise if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crowd", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--people", type=int, default=6)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--postgres", action="store_true", help="over a metastore on PostgreSQL")
    parser.add_argument("--memory", action="store_true", help="over locks in memory")
    parser.add_argument(
        "--mutants", action="store_true", help="check that the mutants are found, in memory"
    )
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    wanted = {"people": given.people, "seconds": given.seconds, "seed": given.seed}
    began = time.monotonic()
    if given.mutants:
        return _find_mutants(given.seconds, given.seed)
    if given.memory:
        locks = MemoryLocks(60.0)
        counts = run(lambda: locks, 60.0, ttl_s=1.0, **wanted)
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            _metastore(Path(folder), postgres=given.postgres) as metastore,
        ):
            access = MetastoreAccess(metastore.uris)
            began = time.monotonic()
            counts = run(
                lambda: MetastoreLocks(MetastoreClient(access), "crowd"),
                LIFETIME_S,
                ttl_s=TTL_S,
                **wanted,
            )
    for name, count in sorted(counts.items()):
        print(f"{count:8,}  {name}")
    print(f"{time.monotonic() - began:.0f} s, nothing broken")
    return 0


def _metastore(folder: Path, *, postgres: bool) -> AbstractContextManager[EmbeddedMetastore]:
    if postgres:
        return metastore_on_postgres(folder, LIFETIME_S)
    return EmbeddedMetastore(folder, lock_timeout_s=LIFETIME_S)


def _find_mutants(seconds: float, seed: int) -> int:
    overlooked = 0
    for mutant in MUTANTS:
        locks, began = MemoryLocks(60.0), time.monotonic()
        try:
            run(
                lambda locks=locks: locks,
                60.0,
                ttl_s=1.0,
                people=8,
                seconds=seconds,
                seed=seed,
                log=mutant,
            )
        except ViolationError as error:
            print(f"{mutant.__name__} found in {time.monotonic() - began:.1f} s: {str(error)[:60]}")
        else:
            print(f"{mutant.__name__} OVERLOOKED")
            overlooked += 1
    return overlooked


if __name__ == "__main__":
    sys.exit(main())
