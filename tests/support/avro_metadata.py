"""Metadata of commits in Avro, as Hudi writes it."""

from __future__ import annotations

import io

import fastavro

STATS = {
    "p=1": [
        {"fileId": "f1-0", "numInserts": 3, "numUpdateWrites": 4, "numDeletes": 1},
        {"fileId": "f2-0", "numInserts": 2, "numUpdateWrites": 0, "numDeletes": 0},
    ],
    "p=2": [{"fileId": "f3-0", "numInserts": 0, "numUpdateWrites": 5, "numDeletes": 0}],
}
RECORD = {
    "partitionToWriteStats": STATS,
    "partitionToReplaceFileIds": {"p=3": ["f9-0"]},
    "operationType": "INSERT_OVERWRITE",
    "extraMetadata": {"_airflow_identity": "i", "schema": "{}"},
}
_STAT = {
    "type": "record",
    "name": "Stat",
    "fields": [
        *({"name": n, "type": ["null", "string"]} for n in ("fileId", "prevCommit")),
        *(
            {"name": n, "type": ["null", "long"]}
            for n in ("numInserts", "numUpdateWrites", "numDeletes")
        ),
    ],
}
SCHEMA = {
    "type": "record",
    "name": "HoodieReplaceCommitMetadata",
    "fields": [
        {
            "name": "partitionToWriteStats",
            "type": ["null", {"type": "map", "values": {"type": "array", "items": _STAT}}],
        },
        {
            "name": "partitionToReplaceFileIds",
            "type": ["null", {"type": "map", "values": {"type": "array", "items": "string"}}],
        },
        {"name": "operationType", "type": ["null", "string"]},
        {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}]},
    ],
}


def avro(record=RECORD):
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(SCHEMA), [record])
    return out.getvalue()
