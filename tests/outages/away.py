"""Ways in which a lock service is unreachable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.outages.lagging import LaggingEnsemble

LAG_S = 0.3


@contextmanager
def stopped(server: EmbeddedZookeeper) -> Iterator[None]:
    """Stop the server, and start it again with its data."""
    server.stop()
    yield
    server.start()


@contextmanager
def held_back(servers: LaggingEnsemble, seconds: float) -> Iterator[None]:
    """Delay all that the leader sends to the follower, which confirms no change meanwhile."""
    servers.hold_back(seconds)
    yield
    servers.hold_back(LAG_S)
