"""Reads of what is new in a table, and where their checkpoints are."""

from __future__ import annotations

import json
import os

from airflow_occ_provider.operators.hudi_incremental_read import (
    HudiIncrementalReadOperator,
)


class AssetState(dict):
    """The state of one asset, which may be inactive."""

    active = True

    def set(self, key, value):
        if not self.active:
            raise RuntimeError("asset not found")
        self[key] = json.loads(json.dumps(value))

    def delete(self, key):
        self.pop(key, None)


def read(folder, **arguments):
    arguments = {"table": str(folder.parent), "application": "read.py", **arguments}
    return HudiIncrementalReadOperator(task_id="read", consumer="dwh", **arguments)


def write(folder, requested, *, completed=False, live=False, dead=False):
    """Make the files of a write in layout 1."""
    (folder / f"{requested}.commit.requested").touch()
    (folder / f"{requested}.inflight").touch()
    if completed:
        commit = folder / f"{requested}.commit"
        commit.write_text("{}")
        os.utime(commit, (1_700_000_000, 1_700_000_000))
    if live or dead:
        beat = folder / ".heartbeat" / requested
        beat.touch()
        if dead:
            os.utime(beat, (1, 1))
