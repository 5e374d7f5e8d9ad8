from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.instant import Instant, State, parse_file_name
from airflow_occ_provider.hudi.timeline import Timeline

T1, T2, T3, C = "20261121092507982", "20261121092529777", "20261121092543328", "20261121092541810"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{T1}.commit.requested", (T1, "commit", State.REQUESTED, None)),
        (f"{T1}.inflight", (T1, "commit", State.INFLIGHT, None)),
        (f"{T1}_{C}.commit", (T1, "commit", State.COMPLETED, C)),
        (f"{T1}.commit", (T1, "commit", State.COMPLETED, None)),
        (f"{T1}.deltacommit.inflight", (T1, "deltacommit", State.INFLIGHT, None)),
        (f"{T1}.clustering.requested", (T1, "clustering", State.REQUESTED, None)),
        (f"{T1}_{C}.rollback", (T1, "rollback", State.COMPLETED, C)),
        ("20261121092507.commit", ("20261121092507", "commit", State.COMPLETED, None)),
    ],
)
def test_file_names(name, expected):
    instant = parse_file_name(name)
    assert instant == Instant(expected[0], expected[1], expected[2], name, expected[3])


@pytest.mark.parametrize(
    "name",
    [
        f".{T1}.commit.requested.crc",
        f"{T1}_{C}.commit.7d1c3b1e-2c53-4c6f-9a3b-000000000000",
        f"{T1}.requested",
        "hoodie.properties",
        "history",
        "metadata",
        T1,
        "",
    ],
)
def test_foreign_names_are_passed_over(name):
    assert parse_file_name(name) is None


def test_each_instant_counts_once_at_its_highest_state():
    timeline = Timeline.from_file_names(
        [
            f"{T2}.inflight",
            f"{T1}_{C}.commit",
            f"{T1}.inflight",
            f"{T1}.commit.requested",
            f"{T2}.commit.requested",
            f"{T3}.rollback.requested",
            "history",
        ]
    )
    assert [str(instant) for instant in timeline] == [
        f"{T1} commit COMPLETED",
        f"{T2} commit INFLIGHT",
        f"{T3} rollback REQUESTED",
    ]
    assert [instant.time for instant in timeline.completed_writes()] == [T1]
    assert [instant.time for instant in timeline.pending_writes()] == [T2]
    assert timeline.latest_completed_write == T1
    assert timeline.find(T3).action == "rollback"
    assert timeline.find("x") is None


def test_an_empty_timeline_has_no_latest_write():
    assert Timeline().latest_completed_write is None
