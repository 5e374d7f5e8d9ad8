from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_occ_provider.hudi.format.file_group import Marker, parse_marker, parse_markers
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule, Liveness


@pytest.mark.parametrize(
    ("age_ms", "liveness", "margin_ms"),
    [
        (-500, Liveness.ALIVE, 120_500),
        (0, Liveness.ALIVE, 120_000),
        (60_000, Liveness.ALIVE, 60_000),
        (90_000, Liveness.ALIVE, 30_000),
        (90_001, Liveness.LATE, 29_999),
        (120_000, Liveness.LATE, 0),
        (120_001, Liveness.DEAD, -1),
    ],
)
def test_expired_is_strictly_older_than_interval_times_misses(age_ms, liveness, margin_ms):
    heartbeat = HeartbeatRule().judge(1_000_000, 1_000_000 + age_ms)
    assert (heartbeat.liveness, heartbeat.margin_ms) == (liveness, margin_ms)
    assert heartbeat.last_ms == 1_000_000


def test_no_heartbeat_is_its_own_answer():
    assert HeartbeatRule().judge(None, 1).liveness is Liveness.NONE


@pytest.mark.parametrize(
    ("path", "partition", "kind", "file_id"),
    [
        ("p=1/f-0_0-1-2_20261121.parquet.marker.MERGE", "p=1", "MERGE", "f-0"),
        ("f-0_0-1-2_20261121.parquet.marker.CREATE", "", "CREATE", "f-0"),
        ("y=1/m=2/.f-0_20261121.log.1_0-1-2.marker.APPEND", "y=1/m=2", "APPEND", "f-0"),
        ("a_b/f-0_0-1-2_20261121.parquet.marker.CREATE", "a_b", "CREATE", "f-0"),
    ],
)
def test_a_marker_names_partition_and_file_group(path, partition, kind, file_id):
    marker = parse_marker(path)
    assert marker is not None
    assert (marker.file_group, marker.kind) == ((partition, file_id), kind)


@pytest.mark.parametrize(
    "path",
    ["", "MARKERS.type", "p=1/f-0_1.parquet.marker.CREA", "p=1/f-0_1.parquet", ".marker.CREATE", "a/b/"],
)
def test_what_is_no_marker_is_passed_over(path):
    assert parse_marker(path) is None


FILES = ["p=1/f-0_0_1.parquet", "p=2/g-0_0_1.parquet", "h-0_0_1.parquet"]
LINES = [f"{name}.marker.CREATE" for name in FILES]


@given(st.integers(0, len("\n".join(LINES))))
def test_a_truncated_file_of_the_timeline_server_gives_a_part_and_nothing_false(length):
    whole = parse_markers(LINES)
    assert parse_markers("\n".join(LINES)[:length].splitlines()) <= whole
    assert Marker("p=1", "f-0_0_1.parquet", "CREATE") in whole
