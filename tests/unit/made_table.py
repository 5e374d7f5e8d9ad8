"""Tables that a test makes by hand, with files that are as old as their names say."""

from __future__ import annotations

import json
import os
from pathlib import Path

from airflow_occ_provider.hudi.format.instant import naive_ms
from airflow_occ_provider.storage.table import HudiTable
from tests.support.table_properties import table_properties

PARTITION = "p1"


class MadeTable:
    """A table of version 6, or of layout 2, in a folder.

    :param path: its base path, which is made.
    """

    def __init__(self, path: Path, *, layout: int = 1, **properties: str) -> None:
        self.path, self.layout = path, layout
        self.timeline = path / ".hoodie" if layout == 1 else path / ".hoodie" / "timeline"
        self.timeline.mkdir(parents=True)
        given = {"table__recordkey__fields": "id", "table__timeline__timezone": "UTC", **properties}
        text = table_properties(version=6 if layout == 1 else 9, layout=layout, **given)
        (path / ".hoodie" / "hoodie.properties").write_text(text)

    def reader(self) -> HudiTable:
        """Return a reader of the table."""
        return HudiTable(str(self.path))

    def put(self, name: str, content: object = "", *, at: str) -> Path:
        """Write a file of the timeline that was last written at a time."""
        text = content if isinstance(content, str) else json.dumps(content)
        file = self.timeline / name
        file.write_text(text)
        seconds = naive_ms(at) / 1000
        os.utime(file, (seconds, seconds))
        return file

    def write(
        self,
        time: str,
        ended: str | None,
        *groups: str,
        operation: str = "UPSERT",
        partition: str = PARTITION,
        bases: dict[str, str] | None = None,
        replaced: tuple[str, ...] = (),
    ) -> None:
        """Add a write, completed at a time or pending, whose inflight file is half a second younger.

        :param groups: its file groups; those without a base are new.
        """
        action = "replacecommit" if "OVERWRITE" in operation else "commit"
        inflight = "inflight" if action == "commit" else f"{action}.inflight"
        bases = bases or {}
        planned = [_stat(group, bases[group]) for group in groups if group in bases]
        if len(planned) < len(groups):
            planned.append(_stat("", "null", 1))
        profile = {"operationType": operation, "partitionToWriteStats": {partition: planned}}
        started = f"{int(time) + 500}"
        self.put(f"{time}.{action}.requested", at=time)
        self.put(f"{time}.{inflight}", profile, at=started)
        if ended is None:
            return
        paths = {group: f"{partition}/{group}_0-1-2_{time}.parquet" for group in groups}
        stats = [{**_stat(g, bases.get(g, "null"), 1), "path": paths[g]} for g in groups]
        metadata = {
            "operationType": operation,
            "partitionToWriteStats": {partition: stats},
            "partitionToReplaceFileIds": {partition: list(replaced)} if replaced else {},
        }
        stamp = f"_{ended}" if self.layout == 2 else ""
        self.put(f"{time}{stamp}.{action}", metadata, at=ended)
        (self.path / partition).mkdir(exist_ok=True)
        for path in paths.values():
            (self.path / path).write_bytes(b"PAR1")

    def tick(self, time: str) -> None:
        """Let the heartbeat of a write be young."""
        folder = self.path / ".hoodie" / ".heartbeat"
        folder.mkdir(exist_ok=True)
        (folder / time).touch()


def _stat(group: str, base: str, inserts: int = 0) -> dict[str, object]:
    return {"fileId": group, "prevCommit": base, "numInserts": inserts, "numUpdateWrites": 1}
