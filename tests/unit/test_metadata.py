from __future__ import annotations

import json
import tracemalloc

import pytest

from airflow_occ_provider.hudi.format.avro import decode
from airflow_occ_provider.hudi.format.commit_metadata import read_commit
from tests.support.avro_metadata import RECORD, STATS, avro


@pytest.mark.parametrize("content", [avro(), json.dumps(RECORD).encode()], ids=["avro", "json"])
def test_both_encodings_say_the_same(content):
    metadata = read_commit(content)
    assert metadata.operation_type == "INSERT_OVERWRITE"
    assert metadata.file_groups == {("p=1", "f1-0"), ("p=1", "f2-0"), ("p=2", "f3-0")}
    assert metadata.replaced == {("p=3", "f9-0")}
    assert metadata.partitions == ("p=1", "p=2", "p=3")
    assert metadata.records == 15
    assert metadata.extra["_airflow_identity"] == "i"
    assert not metadata.is_table_service


def test_an_empty_commit():
    metadata = read_commit(b'{"operationType": "UPSERT"}')
    assert metadata.records == 0
    assert metadata.partitions == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"Obj\x01", avro()[:-30], avro()[:40]])
def test_cut_off_content_is_an_error_never_an_answer(content):
    with pytest.raises(ValueError, match=r".+"):
        read_commit(content)


FULL = {"path": "p/f", "prevCommit": "20261121092507982", "numWrites": 1, "partitionPath": "p"}


def test_fields_that_are_not_requested_are_not_kept_in_memory():
    stats = [
        {"fileId": f"f{n}-0", **FULL, "runtime": {str(k): k for k in range(50)}} for n in range(2000)
    ]
    content = json.dumps(RECORD | {"partitionToWriteStats": {"p": stats}}).encode()
    tracemalloc.start()
    metadata = read_commit(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(metadata.bases) == len(metadata.paths) == 2000
    assert metadata.extra == RECORD["extraMetadata"]
    assert peak < 2.5 * len(content)


def test_only_the_fields_asked_for_are_decoded():
    record = decode(avro(), fields=frozenset({"partitionToWriteStats", "fileId"}))
    assert record == {
        "partitionToWriteStats": {p: [{"fileId": s["fileId"]} for s in of] for p, of in STATS.items()}
    }


def test_a_group_that_begins_with_a_log_file_was_not_there_before():
    stats = [{"fileId": "new", "prevCommit": "2"}, {"fileId": "old", "prevCommit": "1"}]
    metadata = read_commit(avro(RECORD | {"partitionToWriteStats": {"p": stats}}))
    assert metadata.changed("2") == {("p", "old"), ("p=3", "f9-0")}
