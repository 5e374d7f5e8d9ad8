"""The rows of a copy-on-write table, read from its newest files without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from airflow_occ_provider.storage.table import HudiTable


def count_rows(table: Path, column: str = "id") -> Counter[str]:
    """Count each key in the table."""
    counts: Counter[str] = Counter()
    for path in current_files(table):
        counts.update(pq.read_table(path, columns=[column]).column(column).to_pylist())
    return counts


def current_files(table: Path) -> list[Path]:
    """Return the newest committed file of each current file group."""
    look = HudiTable(str(table)).snapshot()
    writes = look.timeline.completed_writes()
    completed = {one.time for one in writes}
    replaced = {
        file_id for one in writes if (done := look.reader.commit(one)) for _, file_id in done.replaced
    }
    newest: dict[str, tuple[str, Path]] = {}
    for path in table.glob("*/*.parquet"):
        file_id, _, time = path.stem.split("_")
        if file_id not in replaced and time in completed and time >= newest.get(file_id, ("", path))[0]:
            newest[file_id] = (time, path)
    return [path for _, path in newest.values()]
