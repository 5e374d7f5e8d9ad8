from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pkgutil import walk_packages
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import airflow_occ_provider.hudi as pure
from airflow_occ_provider.hudi.format.instant import (
    Instant,
    State,
    from_naive_ms,
    moment_ms,
    naive_ms,
    zone_ms,
)
from airflow_occ_provider.hudi.format.timeline import Timeline

T1, T2, T3, C = "20261121092507982", "20261121092529777", "20261121092543328", "20261121092541810"
SIMPLE = ("commit", "deltacommit", "replacecommit", "clean", "rollback", "restore", "savepoint")
SERVICES = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}


def only(*names, **how):
    (instant,) = Timeline.from_file_names(names, **how)
    return instant


@pytest.mark.parametrize("action", [*SIMPLE, "indexing", "schemacommit", *SERVICES])
def test_every_action_in_every_state_of_both_layouts(action):
    requested = f"{T1}.{action}.requested"
    inflight = f"{T1}.inflight" if action == "commit" else f"{T1}.{action}.inflight"
    done = SERVICES.get(action, action)
    assert only(requested) == Instant(T1, action, State.REQUESTED, requested, None, requested)
    assert only(inflight, requested) == Instant(
        T1, action, State.INFLIGHT, inflight, None, requested, inflight
    )
    for name, completion in ((f"{T1}.{done}", None), (f"{T1}_{C}.{done}", C)):
        instant = only(requested, inflight, name)
        assert instant == Instant(T1, done, State.COMPLETED, name, completion, requested, inflight)
        assert instant.requested_action == action
        assert only(name).requested_action == done


@pytest.mark.parametrize(
    "name",
    [
        f".{T1}.commit.requested.crc",
        f"{T1}_{C}.commit.7d1c3b1e-2c53-4c6f-9a3b-000000000000",
        f"{T1}_{C}.commit.crc",
        f"{T1}_{C}.commit.requested",
        f"{T1}_.commit",
        f"_{C}.commit",
        f"{T1}_x.commit",
        f"{T1}.requested",
        f"{T1}.compaction",
        f"{T1}.commit.inflight",
        "x.commit",
        "x.inflight",
        "hoodie.properties",
        ".heartbeat",
        "history",
        "metadata",
        T1,
        "",
    ],
)
def test_foreign_names_are_passed_over(name):
    assert list(Timeline.from_file_names([name])) == []


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


def test_a_savepoint_does_not_hide_the_commit_whose_time_it_has():
    names = [f"{T1}_{C}.savepoint", f"{T1}.savepoint.inflight", f"{T1}_{C}.commit"]
    assert [i.action for i in Timeline.from_file_names(names)] == ["commit", "savepoint"]
    assert Timeline.from_file_names(names).find(T1).action == "commit"


def test_of_two_completions_of_one_instant_the_later_counts():
    assert only(f"{T1}_{T2}.commit", f"{T1}_{T3}.commit").completion_time == T3


def test_an_empty_timeline_has_no_latest_write():
    assert Timeline().latest_completed_write is None


@pytest.mark.parametrize(
    ("zone", "completed"),
    [
        ("America/New_York", "20261121073747127"),  # what Hudi 0.15.0 said in a JVM of that zone
        ("UTC", "20261121123747127"),
        ("Asia/Kathmandu", "20261121182247127"),
        ("Pacific/Auckland", "20261122013747127"),
    ],
)
@pytest.mark.parametrize("lag_ms", [-2_000, 0, 90_000])
def test_without_a_completion_time_in_the_name_the_files_own_time_counts(zone, completed, lag_ms):
    """In the zone of the requested time, whatever that of this process is."""
    asked, done_ms = [], 1795264667127
    begun = datetime.fromtimestamp(done_ms // 1000 - 40, ZoneInfo(zone))
    time = f"{begun:%Y%m%d%H%M%S}127"

    def modified(name):
        asked.append(name)
        return done_ms - 40_000 + lag_ms if name.endswith("requested") else done_ms

    names = [f"{time}.commit", f"{time}.commit.requested", f"{time}.inflight", f"{T2}_{C}.commit"]
    timeline = Timeline.from_file_names(names, modified)
    assert timeline.find(time).completion_time == completed
    assert timeline.find(T2).completion_time == C
    assert sorted(asked) == [f"{time}.commit", f"{time}.commit.requested"]
    assert only(f"{T1}.commit", modified=lambda _: None).completion_time is None


def test_the_zone_of_a_copied_file_is_not_known():
    names = [f"{T1}.commit", f"{T1}.commit.requested"]
    timeline = Timeline.from_file_names(names, lambda _: 1_795_264_667_127 + 30 * 86_400_000)
    assert timeline.find(T1).completion_time == "20261221123747127"
    assert zone_ms("00000000000001", 5) is None
    assert moment_ms("00000000000001", 5) == 5
    assert moment_ms(T1, None) is None


@given(
    st.integers(min_value=0, max_value=4_102_444_800_000),
    st.sampled_from([UTC, ZoneInfo("Asia/Kolkata"), ZoneInfo("America/Lima"), ZoneInfo("Asia/Tokyo")]),
)
def test_a_moment_survives_being_written(moment, zone):
    seconds, millis = divmod(moment, 1000)
    text = f"{datetime.fromtimestamp(seconds, zone):%Y%m%d%H%M%S}{millis:03}"
    assert from_naive_ms(naive_ms(text)) == text
    assert moment_ms(text, moment + 100_000) == moment


# One action an instant, as in Hudi; times of which one begins as the other does.
ACTIONS = st.sampled_from([*SIMPLE, *SERVICES])
TIMES = st.sampled_from([T1, T2, T3, T1[:14], T1 + "001", "00000000000001"])
FOREIGN = st.sampled_from(
    [f".{T1}.commit.crc", "history", f"{T1}_{C}.commit.tmp", "hoodie.properties", ""]
)

NO_INSTANT = st.text(max_size=12).filter(lambda name: not name[:1].isdecimal())


def files_of(time, action, state, completion):
    done = SERVICES.get(action, action)
    inflight = "inflight" if action == "commit" else f"{action}.inflight"
    names = (f"{time}.{action}.requested", f"{time}.{inflight}", f"{time}{completion}.{done}")
    return names[: state + 1]


INSTANTS = st.dictionaries(
    TIMES,
    st.tuples(ACTIONS, st.integers(0, 2), st.sampled_from(["", f"_{C}", f"_{T3}"])),
    max_size=6,
)


@st.composite
def folders(draw):
    found = [name for time, rest in draw(INSTANTS).items() for name in files_of(time, *rest)]
    lost = draw(st.sets(st.sampled_from(found))) if found else set()
    return [*(name for name in found if name not in lost), *draw(st.lists(FOREIGN, max_size=3))]


@given(folders(), st.randoms(use_true_random=False))
def test_the_order_of_the_listing_does_not_matter(names, random):
    shuffled = random.sample(names, len(names))
    assert Timeline.from_file_names(shuffled) == Timeline.from_file_names(names)


@given(folders(), st.lists(FOREIGN | NO_INSTANT, max_size=5))
def test_foreign_files_change_nothing(names, foreign):
    assert Timeline.from_file_names([*names, *foreign]) == Timeline.from_file_names(names)


@given(folders(), folders())
def test_a_refresh_gives_what_a_cold_read_gives(before, after):
    timeline = Timeline.from_file_names(before).refreshed(after)
    assert timeline == Timeline.from_file_names(after)
    assert timeline.refreshed(after) is timeline


@given(folders())
def test_instants_are_in_order_and_each_there_once(names):
    timeline = Timeline.from_file_names(names)
    keys = [(instant.time, SERVICES.get(instant.action, instant.action)) for instant in timeline]
    assert len(set(keys)) == len(keys)
    assert [time for time, _ in keys] == sorted(time for time, _ in keys)
    for instant in timeline:
        assert timeline.find(instant.time).time == instant.time


def test_a_refresh_keeps_completion_times_that_were_read():
    known = Timeline.from_file_names([f"{T1}.commit"], lambda _: 0)
    asked = []
    known.refreshed([f"{T1}.commit", f"{T2}.commit"], asked.append)
    assert asked == [f"{T2}.commit"]


def test_the_pure_core_imports_nothing_heavy():
    imports = ", ".join(one.name for one in walk_packages(pure.__path__, f"{pure.__name__}."))
    heavy = {"airflow", "fsspec", "pyspark", "pyarrow", "fastavro", "kazoo"}
    code = f"import sys, {imports}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_instants_between_two_times_of_either_kind():
    timeline = Timeline.from_file_names(
        ["10_30.commit", "11_20.commit", "12_40.commit", "13.commit.requested"]
    )
    by_completion = [one.time for one in timeline.between("20", "40")]
    assert by_completion == ["10", "12"]
    by_request = [one.time for one in timeline.between("10", "13", by="requested_time")]
    assert by_request == ["11", "12", "13"]
    assert timeline.between("", "19") == ()
    with pytest.raises(ValueError, match="'completed' is no time"):
        timeline.between("", "19", by="completed")


def test_instants_with_one_requested_time_collide():
    names = ["10_30.commit", "10_31.clean", "11_20.commit", "11_21.savepoint"]
    ((first, second),) = Timeline.from_file_names(names).collisions()
    assert {first.action, second.action} == {"commit", "clean"}
