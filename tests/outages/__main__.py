"""``python -m tests.outages --waiters 200 --times 10``: waiters that retry keep their places."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import structlog

from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.outages.away import LAG_S, held_back, stopped
from tests.outages.lagging import LaggingEnsemble
from tests.outages.rig import Crowd


def main() -> int:
    """Run the outages; raise if a request lost its place."""
    parser = argparse.ArgumentParser(prog="python -m tests.outages", description=__doc__)
    parser.add_argument("--waiters", type=int, default=200)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each outage")
    parser.add_argument("--lag", action="store_true", help="at a follower that lags behind its leader")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began = time.monotonic()

    def run(crowd: Crowd, away: Callable[[], AbstractContextManager[None]]) -> None:
        asyncio.run(crowd.run(away, given.seconds, given.times))
        for name, count in sorted(crowd.counts.items()):
            print(f"{count:8,}  {name}")

    with tempfile.TemporaryDirectory() as folder:
        if given.lag:
            with LaggingEnsemble(Path(folder)) as servers:
                servers.hold_back(LAG_S)
                # At that lag the threads of a triggerer renew some waiters a second, not hundreds.
                hosts = (servers.follower.hosts, servers.leader.hosts)
                crowd = Crowd(*hosts, given.waiters, term_ms=60_000, timeout_s=8)
                run(crowd, lambda: held_back(servers, given.seconds))
        else:
            with EmbeddedZookeeper(Path(folder), free_port()) as server:
                run(Crowd(server.hosts, server.hosts, given.waiters), lambda: stopped(server))
    print(f"{time.monotonic() - began:.0f} s, no request lost its place")
    return 0


if __name__ == "__main__":
    sys.exit(main())
