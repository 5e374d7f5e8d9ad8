"""Rollbacks of attempts, and their marks."""

from __future__ import annotations

import io

import fastavro

from airflow_occ_provider.attempts.record import AttemptRecord
from tests.support.hand_made_tables import T1

ROLLBACK = "20261121092600000"
EARLY, MADE, LATE = "20261121092601000", "20261121092602000", "20261121092603000"
SCHEMA = {
    "type": "record",
    "name": "HoodieRollbackMetadata",
    "fields": [{"name": "commitsRollback", "type": {"type": "array", "items": "string"}}],
}


def roll_back(folder, time, name):
    content = io.BytesIO()
    fastavro.writer(content, SCHEMA, [{"commitsRollback": [time]}])
    (folder / "timeline" / name).write_bytes(content.getvalue())


def attempt(end=""):
    return AttemptRecord(1, 14, "me", "/t", 0, None, "", (T1,), end, settled=True)


def mark(folder, time, *, written=True):
    marker = folder / ".temp" / time / "p" / f"f_1-0_{time}.parquet.marker.CREATE"
    data = folder.parent / "p" / f"f_1-0_{time}.parquet"
    for path in (marker, data) if written else (marker,):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
