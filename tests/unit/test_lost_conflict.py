"""Which completed rivals certainly refuse a pending overwrite, on a table made by hand."""

from __future__ import annotations

import os

import pytest

from airflow_occ_provider.storage.conflicts import lost_conflict, possible_winners
from tests.support.avro_metadata import avro

OURS = "20261122100000000"
EARLIER, MADE, CHANGED = "20261122090000000", "20261122100100000", "20261122100200000"
DAY = "dt=1"


@pytest.fixture
def write(folder):
    """Adds the file of an instant's state, so many seconds after the first."""

    def write(name, second, operation, **stat):
        stats = [{"fileId": "", **stat}] if stat else []
        record = {"operationType": operation, "partitionToWriteStats": {DAY: stats}}
        path = folder / "timeline" / name
        path.write_bytes(avro({**record, "partitionToReplaceFileIds": {}, "extraMetadata": {}}))
        os.utime(path, (1_000_000 + second, 1_000_000 + second))

    return write


@pytest.fixture
def overwrite(write):
    """Adds a pending overwrite of the day, in which one file group exists."""
    write(f"{EARLIER}_20261122090001000.commit", 0, "INSERT", fileId="old", prevCommit="null")
    write(f"{OURS}.replacecommit.requested", 10, "INSERT_OVERWRITE")
    write(f"{OURS}.replacecommit.inflight", 11, "INSERT_OVERWRITE")


def lost(table):
    snapshot = table.snapshot()
    ours = snapshot.timeline.find(OURS)
    return lost_conflict(snapshot, ours, possible_winners(snapshot, ours))


def test_a_group_that_existed_is_overwritten_and_was_changed(table, write, overwrite):
    write(f"{CHANGED}_20261122100201000.commit", 30, "UPSERT", fileId="old", prevCommit=EARLIER)
    assert lost(table).file_groups == {(DAY, "old")}


def test_a_group_that_was_made_since_may_not_be_overwritten(table, write, overwrite):
    write(f"{MADE}_20261122100101000.commit", 20, "INSERT", fileId="new", prevCommit="null")
    write(f"{CHANGED}_20261122100201000.commit", 30, "UPSERT", fileId="new", prevCommit=MADE)
    assert lost(table) is None
