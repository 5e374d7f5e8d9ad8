"""What dead writers leave in a table."""

from __future__ import annotations

import os
import time
from pathlib import Path

from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from tests.support.hand_made_tables import C, add
from tests.support.rollbacks import roll_back

GOLDEN = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"
RULE = HeartbeatRule(60_000, 2)
LONG_AGO_S, JUST_NOW_S = 300, 10
ROLLBACK = f"20261121092600000_{C}.rollback"


def age(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def beat(folder, instant, seconds=LONG_AGO_S):
    heartbeat = folder / ".heartbeat" / instant
    heartbeat.touch()
    age(heartbeat, seconds)


def complete(folder, instant, seconds=LONG_AGO_S):
    add(folder, f"{instant}_{C}.commit")
    age(folder / "timeline" / f"{instant}_{C}.commit", seconds)


def clean(folder, instant):
    """Do to the hand-made timeline what Hudi's lazy rollback does."""
    for path in (folder / "timeline").glob(f"{instant}*"):
        path.unlink()
    roll_back(folder, instant, ROLLBACK)
