"""Tables for the benchmarks: as many instants as asked for, in the formats of table version 8."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

import fastavro
import pyarrow as pa
from pyarrow import parquet

from tests.support.table_properties import table_properties

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_BETWEEN = timedelta(seconds=61, milliseconds=234)
_LASTS = timedelta(seconds=5, milliseconds=678)
# The mix of a copy-on-write table with inline cleaning and a few overwrites.
_ACTIONS = ("commit", "clean", "commit", "clean", "commit", "replacecommit", "commit", "rollback")
_STATS = ("numInserts", "numUpdateWrites", "numDeletes", "numWrites", "fileSizeInBytes")
_STAT = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        *({"name": name, "type": ["null", "string"]} for name in ("fileId", "path", "prevCommit")),
        *({"name": name, "type": ["null", "long"]} for name in _STATS),
    ],
}
_COMMIT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCommitMetadata",
        "fields": [
            {
                "name": "partitionToWriteStats",
                "type": ["null", {"type": "map", "values": {"type": "array", "items": _STAT}}],
            },
            {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "operationType", "type": ["null", "string"]},
        ],
    }
)
_ROLLBACK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieRollbackMetadata",
        "fields": [{"name": "commitsRollback", "type": {"type": "array", "items": "string"}}],
    }
)
_HISTORY = pa.schema(
    [
        *((name, pa.string()) for name in ("instantTime", "completionTime", "action")),
        *((name, pa.binary()) for name in ("metadata", "plan")),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


def instants(number: int, start: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yield requested time, completion time and action of as many instants, oldest first."""
    for place, action in enumerate(islice(cycle(_ACTIONS), start, start + number), start):
        moment = _FIRST + place * _BETWEEN
        yield _text(moment), _text(moment + _LASTS), action


def commit_content(time: str) -> bytes:
    """Return the metadata of a commit that wrote four file groups in two partitions."""
    stats = {
        f"dt=2026-01-0{day}": [
            {"fileId": f"{time}-{day}-{n}-0", "path": f"dt=2026-01-0{day}/{time}-{n}.parquet"}
            | dict.fromkeys(_STATS, n)
            for n in range(2)
        ]
        for day in (1, 2)
    }
    out = io.BytesIO()
    record = {"partitionToWriteStats": stats, "extraMetadata": {}, "operationType": "UPSERT"}
    fastavro.writer(out, _COMMIT, [record])
    return out.getvalue()


def rollback_content(time: str) -> bytes:
    """Return the metadata of a rollback of an instant that began just before it."""
    out = io.BytesIO()
    fastavro.writer(out, _ROLLBACK, [{"commitsRollback": [str(int(time) - 1)]}])
    return out.getvalue()


def add_instant(
    timeline: Path, time: str, completion: str, action: str, layout: int = 2
) -> tuple[Path, ...]:
    """Write the three files of a completed instant."""
    inflight = "inflight" if action == "commit" else f"{action}.inflight"
    content = commit_content(time) if action.endswith("commit") else b""
    content = rollback_content(time) if action == "rollback" else content
    done = timeline / (f"{time}.{action}" if layout == 1 else f"{time}_{completion}.{action}")
    files = {
        timeline / f"{time}.{action}.requested": b"",
        timeline / f"{time}.{inflight}": content,
        done: content,
    }
    for path, held in files.items():
        path.write_bytes(held)
    moment = datetime.strptime(completion[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    os.utime(done, (moment, moment))  # the completion time that layout 1 has
    return tuple(files)


def make_table(root: Path, number: int, layout: int = 2) -> Path:
    """Make a table with as many completed instants in its active timeline; return that folder."""
    timeline = root / ".hoodie" / ("timeline" if layout == 2 else "")
    timeline.mkdir(parents=True)
    properties = table_properties(
        version=8 if layout == 2 else 6, layout=layout, table__timeline__timezone="UTC"
    )
    (root / ".hoodie" / "hoodie.properties").write_text(properties)
    for time, completion, action in instants(number):
        add_instant(timeline, time, completion, action, layout)
    return timeline


def make_history(folder: Path) -> list[Path]:
    """Write a history of 10,000 entries, in files as Hudi's defaults make them.

    Ten files of one level are merged into one of the next: nine of a thousand entries, nine of a
    hundred, ten of ten.

    :return: the files that the manifest names.
    """
    folder.mkdir(parents=True)
    files, start = [], 0
    for level, size, number in ((2, 1000, 9), (1, 100, 9), (0, 10, 10)):
        for _ in range(number):
            files.append(_history_file(folder, level, start, size))
            start += size
    entries = [{"fileName": path.name, "fileLen": path.stat().st_size} for path in files]
    (folder / "manifest_1000").write_text(json.dumps({"files": entries}))
    (folder / "_version_").write_text("1000")
    return files


def _history_file(folder: Path, level: int, start: int, size: int) -> Path:
    rows = [
        {
            "instantTime": time,
            "completionTime": completion,
            "action": action,
            "metadata": commit_content(time),
            "plan": None,
            "version": 1,
        }
        for time, completion, action in instants(size, start)
    ]
    path = folder / f"{rows[0]['instantTime']}_{rows[-1]['instantTime']}_{level}.parquet"
    table = pa.Table.from_pylist(rows, _HISTORY)
    # Hudi's own files: gzip, and no dictionary where values do not repeat.
    parquet.write_table(table, path, compression="gzip", use_dictionary=["version"])
    return path


def _text(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}"
