"""Commits of which a task run has no record."""

from __future__ import annotations

from tests.support.avro_metadata import RECORD, avro
from tests.support.hand_made_tables import T1, C


def commit(folder, signature, operation="UPSERT"):
    record = {**RECORD, "operationType": operation, "extraMetadata": signature.options()}
    (folder / "timeline" / f"{T1}_{C}.commit").write_bytes(avro(record))
    for partition in ("p=1", "p=2", "p=3"):
        (folder.parent / partition).mkdir(exist_ok=True)
