"""One writer under which its store stalls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.stalls.store import StallingStore
from tests.support.writers import Writer, wait_for


def stall(
    stack: EmbeddedStack,
    folder: Path,
    interval_ms: int,
    misses: int,
    seconds: float,
    *,
    writes_meanwhile: bool = False,
    conf: Mapping[str, object] = MappingProxyType({}),
) -> Writer:
    """Stall the store under a writer that has begun.

    :param seconds: length of the stall; after half of it the store answers us, with a dead heartbeat.
    :param writes_meanwhile: whether the writer writes meanwhile, or only once its heartbeat resumed.
    :param conf: further settings of its Spark.
    :return: the writer, ended.
    """
    table, gate = folder / "t", folder / "gate"
    gate.mkdir(parents=True)
    store = StallingStore(folder / "stall")
    writer = Writer(
        stack,
        table,
        ("--gate", str(gate)),
        hudi_options={
            "hoodie.client.heartbeat.interval_in_ms": interval_ms,
            "hoodie.client.heartbeat.tolerable.misses": misses,
        },
        conf={**conf, **store.conf(stack.hudi_version)},
        watched=True,
        file_system=store.ours,
        timeout_s=min(60.0, seconds / 6),
    ).start()
    wait_for("its begin", (gate / "w.begun").exists, writer)
    with store.stalled():
        if writes_meanwhile:
            (gate / "w.go").touch()
        time.sleep(seconds / 2)
        store.answer_us()
        time.sleep(seconds / 2)
        stalled_to = time.time()
        assert _last_tick(table) < stalled_to - seconds + interval_ms / 1000, "nothing has stalled"
    wait_for("a tick after the stall", lambda: _last_tick(table) > stalled_to, writer)
    (gate / "w.go").touch()
    writer.wait()
    return writer


def _last_tick(table: Path) -> float:
    files = (table / ".hoodie" / ".heartbeat").glob("2*")
    return max((path.stat().st_mtime for path in files), default=0.0)
