"""The commit check, predicted from metadata: one scenario a line, named for its pair of writers."""

from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.conflict.operation import (
    ConcurrentOperation,
    Times,
    pending_operation,
    planned_operation,
)
from airflow_occ_provider.hudi.conflict.strategy import (
    Rules,
    Strategy,
    infer_strategy,
    is_non_blocking,
    possible_releases,
)
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Present, judge, judge_by_any, was_seen
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import parse_marker
from airflow_occ_provider.hudi.format.instant import Instant, State, naive_ms
from tests.support.operations import AFTER, BEFORE, OLD, F, G, T, completed, ours, pending

RELEASES = {6: (0, 15), 8: (1, 0), 9: (1, 2)}
CERTAIN, POSSIBLE, NONE = Certainty.CERTAIN, Certainty.POSSIBLE, Certainty.NONE


def rules(strategy=Strategy.SIMPLE, *, version=9, merge_on_read=False, writer=None):
    return Rules(strategy, version, merge_on_read, writer or RELEASES[version])


SCENARIOS = {
    "an elder that completed while we wrote": (ours(), completed(BEFORE, 300, F), CERTAIN),
    "a younger that completed while we wrote": (ours(), completed(AFTER, 300, F), CERTAIN),
    "another file group": (ours(), completed(AFTER, 300, G), NONE),
    "the same file id in another partition": (ours(), completed(AFTER, 300, ("p=2", "f-0")), NONE),
    "completed before we were requested": (ours(), completed(BEFORE, 50, F, at=BEFORE), NONE),
    "between, and our profile is built on it": (
        ours(bases={F: BEFORE}),
        completed(BEFORE, 150, F, based=frozenset({F})),
        NONE,
    ),
    "between, and our profile is built on an older base": (
        ours(),
        completed(BEFORE, 150, F, based=frozenset({F})),
        CERTAIN,
    ),
    "between, and our profile may be built on an older base than was read": (
        ours(has_fresh_bases=False),
        completed(BEFORE, 150, F, based=frozenset({F})),
        POSSIBLE,
    ),
    "between, and it took out what our profile names, found before we began": (
        ours(has_fresh_bases=False),
        completed(BEFORE, 150, F, replaced=frozenset({F})),
        POSSIBLE,
    ),
    "between, and it only wrote a log file": (ours(), completed(BEFORE, 150, F), POSSIBLE),
    "between, and it took out what our profile names": (
        ours(),
        completed(BEFORE, 150, F, replaced=frozenset({F})),
        CERTAIN,
    ),
    "between, and our profile names a file group that it made": (
        ours(),
        completed(BEFORE, 150, F, existing=frozenset()),
        NONE,
    ),
    "a live neighbour on the same file group": (ours(), pending(BEFORE, F), CERTAIN),
    "a dead neighbour on the same file group": (ours(), pending(BEFORE, F, live=False), POSSIBLE),
    "a dead neighbour that never said what it touches": (
        ours(),
        pending(BEFORE, may_touch_more=True, live=False),
        NONE,
    ),
    "a neighbour that is only requested": (ours(), pending(AFTER, may_touch_more=True), POSSIBLE),
    "a pending clustering of our file group": (
        ours(),
        pending(BEFORE, F, action="clustering", operation_type="CLUSTER"),
        CERTAIN,
    ),
    "an older pending compaction": (
        ours(),
        pending(BEFORE, F, action="compaction", operation_type="COMPACT"),
        NONE,
    ),
    "a neighbour that overwrites our partition": (
        ours(),
        pending(AFTER, overwrites=frozenset({"p=1"}), operation_type="INSERT_OVERWRITE"),
        CERTAIN,
    ),
    "a neighbour that overwrites the table": (ours(), pending(AFTER, overwrites_table=True), CERTAIN),
    "a neighbour that overwrites another partition": (
        ours(),
        pending(AFTER, overwrites=frozenset({"p=2"})),
        NONE,
    ),
    "a log compaction of ours": (ours(action="logcompaction"), completed(AFTER, 300, F), NONE),
    "a compaction of ours": (ours(action="compaction"), completed(AFTER, 300, F), NONE),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_simple_strategy(name):
    own, rival, expected = SCENARIOS[name]
    verdict = judge(own, [rival], rules())
    assert verdict.certainty is expected
    assert bool(verdict.conflicts) is (expected is not NONE)
    assert all(conflict.reason for conflict in verdict.conflicts)


def test_the_evidence_names_the_rival_and_what_both_touch():
    verdict = judge(ours(), [completed(AFTER, 300, F, G), pending(BEFORE, F)], rules())
    assert [
        (c.rival.instant.time, c.file_groups, c.rival.instant.completed) for c in verdict.conflicts
    ] == [
        (AFTER, {F}, True),
        (BEFORE, {F}, False),
    ]


def test_certain_conflicts_come_first():
    unknown = pending(BEFORE, may_touch_more=True)
    verdict = judge(ours(), [unknown, completed(AFTER, 300, F)], rules())
    assert [conflict.certainty for conflict in verdict.conflicts] == [CERTAIN, POSSIBLE]


@pytest.mark.parametrize(
    ("version", "writer", "expected"),
    [(6, None, CERTAIN), (8, (1, 0), CERTAIN), (8, (1, 2), NONE), (9, None, NONE)],
)
def test_a_later_compaction_counts_only_for_earlier_writers(version, writer, expected):
    plan = pending(AFTER, F, action="compaction", operation_type="COMPACT", requested_ms=300)
    table = rules(version=version, merge_on_read=True, writer=writer)
    assert judge(ours(action="deltacommit"), [plan], table).certainty is expected


@pytest.mark.parametrize(("version", "expected"), [(6, NONE), (8, NONE), (9, CERTAIN)])
def test_an_older_clustering_plan_counts_since_1_1(version, expected):
    plan = pending(BEFORE, F, action="clustering", operation_type="CLUSTER", state=State.REQUESTED)
    assert judge(ours(), [plan], rules(version=version)).certainty is expected


def test_an_older_clustering_that_is_under_way_wins():
    clustering = pending(BEFORE, F, action="clustering", operation_type="CLUSTER")
    assert judge(ours(), [clustering], rules(version=8)).certainty is CERTAIN


@pytest.mark.parametrize(("version", "expected"), [(6, NONE), (8, CERTAIN), (9, NONE)])
def test_an_earlier_writer_loses_to_our_pending_overwrite_except_on_1_0(version, expected):
    own = ours(action="replacecommit", operation_type="INSERT_OVERWRITE", overwrites=frozenset({"p=1"}))
    assert judge(own, [pending(BEFORE, F)], rules(version=version)).certainty is expected


def test_prefer_writer_compares_completion_with_our_request():
    seen = completed(BEFORE, 150, F, at="20261121100000001", based=frozenset({F}))
    own = ours(bases={F: BEFORE})
    assert judge(own, [seen], rules()).certainty is NONE
    assert judge(own, [seen], rules(Strategy.PREFER_WRITER)).certainty is POSSIBLE
    late = completed(BEFORE, 300, F, at="20261121100000001", based=frozenset({F}))
    assert judge(ours(), [late], rules(Strategy.PREFER_WRITER)).certainty is CERTAIN


@pytest.mark.parametrize("zone_h", [-8, 0, 5.5, 13])
@pytest.mark.parametrize("text", [OLD, T, "20261121235959999"])
@pytest.mark.parametrize(
    ("completed_ms", "expected"),
    [(-3_600_000, NONE), (-1, NONE), (2_000, CERTAIN), (300_000, CERTAIN), (None, POSSIBLE)],
)
def test_before_version_8_prefer_writer_compares_moments(zone_h, text, completed_ms, expected):
    """The completion time as text is in the zone of some process, which proves nothing."""
    begun_ms = naive_ms(T) - round(zone_h * 3_600_000)
    instant = Instant(BEFORE, "commit", State.COMPLETED, f"{BEFORE}.commit", text)
    at_ms = None if completed_ms is None else begun_ms + completed_ms
    groups = frozenset({F})
    rival = ConcurrentOperation(instant, "UPSERT", groups, groups, completed_ms=at_ms)
    own = ours(requested_ms=begun_ms + 1_000, inflight_ms=begun_ms + 60_000)
    found = judge(own, [rival], rules(Strategy.PREFER_WRITER, version=6))
    assert found.certainty is expected


def test_prefer_writer_ignores_a_plan_that_is_not_executed():
    plan = pending(AFTER, F, action="compaction", operation_type="COMPACT", state=State.REQUESTED)
    assert judge(ours(), [plan], rules(Strategy.PREFER_WRITER)).certainty is NONE


def test_prefer_writer_lets_the_table_service_lose():
    clustering = pending(AFTER, F, action="clustering", operation_type="CLUSTER")
    assert judge(ours(), [clustering], rules(Strategy.PREFER_WRITER)).certainty is NONE
    compaction = pending(AFTER, F, action="compaction", operation_type="COMPACT")
    assert judge(ours(), [compaction], rules(Strategy.PREFER_WRITER)).certainty is CERTAIN
    own = ours(action="clustering", operation_type="CLUSTER")
    assert judge(own, [pending(AFTER, F)], rules(Strategy.PREFER_WRITER)).certainty is CERTAIN


def test_the_bucket_strategy_compares_buckets():
    mine, other = ("p", "00000001-aaaa-0"), ("p", "00000001-bbbb-0")
    own = ours(file_groups=frozenset({mine}), existing=frozenset({mine}))
    assert judge(own, [completed(AFTER, 300, other)], rules()).certainty is NONE
    by_bucket = judge(own, [completed(AFTER, 300, other)], rules(Strategy.BUCKET_INDEX))
    assert by_bucket.certainty is CERTAIN


def test_a_bucket_made_anew_was_seen_to_be_gone():
    gone, anew = ("p", "00000001-aaaa-0"), ("p", "00000001-bbbb-0")
    rival = completed(BEFORE, 150, gone, replaced=frozenset({gone}), operation_type="DELETE_PARTITION")
    made = {"file_groups": frozenset({anew}), "existing": frozenset(), "marked": frozenset({anew})}
    bucket_index = rules(Strategy.BUCKET_INDEX)
    assert judge(ours(**made), [rival], bucket_index).certainty is NONE
    assert judge(ours(**made, operation_type="BULK_INSERT"), [rival], bucket_index).certainty is POSSIBLE


def test_two_overwrites_of_a_partition_conflict_if_anything_is_there():
    own = ours(file_groups=frozenset(), existing=frozenset(), overwrites=frozenset({"p=1"}))
    rival = pending(AFTER, overwrites=frozenset({"p=1"}), operation_type="INSERT_OVERWRITE")
    assert judge(own, [rival], rules(), Present(frozenset({F}))).certainty is CERTAIN
    assert judge(own, [rival], rules(), Present()).certainty is NONE
    assert judge(own, [rival], rules(), Present(complete=False)).certainty is POSSIBLE


@pytest.mark.parametrize(
    ("ms", "expected"), [(50, True), (99, True), (100, None), (200, None), (201, False)]
)
def test_without_a_completion_stamp_the_files_times_decide(ms, expected):
    instant = Instant(BEFORE, "commit", State.COMPLETED, f"{BEFORE}.commit", BEFORE)
    rival = ConcurrentOperation(
        instant, file_groups=frozenset({F}), existing=frozenset({F}), completed_ms=ms
    )
    assert was_seen(ours(), rival) is expected


@pytest.mark.parametrize(
    ("operation_type", "has_index", "expected"),
    [
        ("UPSERT", False, True),
        ("UPSERT", True, False),
        ("UPSERT_PREPPED", False, False),
        ("DELETE_PREPPED", False, False),
    ],
)
def test_a_profile_names_what_was_read_unless_the_records_came_with_their_locations(
    operation_type, has_index, expected
):
    instant = Instant(BEFORE, "commit", State.INFLIGHT, f"{BEFORE}.inflight")
    profile, fresh = CommitMetadata(operation_type), not has_index
    found = pending_operation(instant, profile, (), Times(), has_fresh_bases=fresh)
    assert found.has_fresh_bases is expected


BASE, LOG = "f-0_0-1-2_{}.parquet", ".f-0_{}.log.1_0-1-2"


def without_profile(*markers, action="commit"):
    instant = Instant(BEFORE, action, State.INFLIGHT, f"{BEFORE}.{action}.inflight")
    made = [parse_marker(f"p=1/{marker}") for marker in markers]
    return pending_operation(instant, None, made, Times())


@pytest.mark.parametrize(
    ("markers", "operation_type", "expected"),
    [
        ([BASE + ".marker.CREATE"], "BULK_INSERT", NONE),
        ([BASE + ".marker.CREATE", BASE + ".marker.MERGE"], "UNKNOWN", POSSIBLE),
        ([LOG + ".marker.APPEND"], "UNKNOWN", POSSIBLE),
        ([LOG + ".marker.CREATE"], "UNKNOWN", POSSIBLE),
        ([], "UNKNOWN", POSSIBLE),
    ],
)
def test_an_empty_profile_is_a_bulk_insert_only_where_all_markers_create_base_files(
    markers, operation_type, expected
):
    """Flink writes an empty inflight file, and may touch more than its markers name so far."""
    rival = without_profile(*markers)
    assert rival.operation_type == operation_type
    elsewhere = ours(file_groups=frozenset({G}), existing=frozenset({G}), bases={G: OLD})
    assert judge(elsewhere, [rival], rules()).certainty is expected


def test_the_markers_of_a_write_that_was_listed_as_requested_show_no_operation():
    """It went inflight since, and may have a profile that the listing does not show."""
    listed = Instant(AFTER, "commit", State.REQUESTED, f"{AFTER}.commit.requested")
    made = [parse_marker(f"p=1/{BASE}.marker.CREATE")]
    assert pending_operation(listed, None, made, Times()).operation_type == "UNKNOWN"


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("strategy", [Strategy.SIMPLE, Strategy.BUCKET_INDEX, Strategy.PREFER_WRITER])
def test_a_planned_log_compaction_is_no_rival(version, strategy):
    plan = Instant(AFTER, "logcompaction", State.REQUESTED, f"{AFTER}.logcompaction.requested")
    rival = planned_operation(plan, frozenset({F}), Times(300))
    assert rival.operation_type == "LOG_COMPACT"
    assert judge(ours(), [rival], rules(strategy, version=version)).certainty is NONE


@pytest.mark.parametrize(("time", "expected"), [(BEFORE, POSSIBLE), (AFTER, CERTAIN)])
def test_a_log_compaction_that_runs_counts_once_it_is_done(time, expected):
    """Done, it is a deltacommit; Hudi does not remember it among the instants that were pending."""
    running = Instant(time, "logcompaction", State.INFLIGHT, f"{time}.logcompaction.inflight")
    rival = planned_operation(running, frozenset({F}), Times(300))
    assert judge(ours(), [rival], rules(version=6)).certainty is expected
    done = completed(time, 300, F, action="deltacommit", operation_type="LOG_COMPACT")
    assert judge(ours(), [done], rules(version=6)).certainty is expected


@pytest.mark.parametrize("operation_type", ["INSERT", "UPSERT", "INSERT_PREPPED", "UPSERT_PREPPED"])
def test_new_records_may_go_to_a_small_file(operation_type):
    rival = pending(AFTER, G, operation_type=operation_type, adds_to=frozenset({"p=1"}))
    assert judge(ours(), [rival], rules()).certainty is POSSIBLE


SIMPLE_BUCKET, FIXED_BUCKET = (
    "00000001-7cf5-4a1e-8d3c-4e5f6a7b8c9d-0",
    f"00000001{'-0000' * 3}-{'0' * 12}-0",
)


@pytest.mark.parametrize(
    ("groups", "strategy", "non_blocking"),
    [
        ({F}, Strategy.SIMPLE, False),
        ({("p", SIMPLE_BUCKET)}, Strategy.BUCKET_INDEX, False),
        ({("p", FIXED_BUCKET)}, Strategy.BUCKET_INDEX, True),
        (
            {("p", SIMPLE_BUCKET), ("p", "7cf51234-7cf5-4a1e-8d3c-4e5f6a7b8c9d-0")},
            Strategy.SIMPLE,
            False,
        ),
        (set(), Strategy.SIMPLE, False),
    ],
)
def test_the_file_ids_show_the_strategy_and_the_mode(groups, strategy, non_blocking):
    own = ours(file_groups=frozenset(groups))
    assert infer_strategy([own]) is strategy
    assert is_non_blocking(own, None) is non_blocking
    assert is_non_blocking(own, "non_blocking_concurrency_control")


@pytest.mark.parametrize("rival", [completed(AFTER, 300, F), pending(BEFORE, F)])
def test_nothing_is_certain_under_non_blocking_concurrency_control(rival):
    by_rules = Rules(Strategy.BUCKET_INDEX, 9, True, (1, 2), non_blocking=True)
    verdict = judge(ours(), [rival], by_rules)
    assert (verdict.certainty, verdict.conflicts[0].certainty) == (POSSIBLE, POSSIBLE)
    assert "non-blocking" in verdict.conflicts[0].reason


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (6, frozenset(), {(0, 15)}),
        (6, frozenset({"prevBaseFile"}), {(1, 0), (1, 1)}),
        (6, frozenset({"prevBaseFile", "totalLogBlocksSize"}), {(1, 2)}),
        (6, None, {(0, 15), (1, 0), (1, 2)}),
        (8, None, {(1, 0), (1, 2)}),
        (9, None, {(1, 2)}),
    ],
)
def test_the_write_statistics_show_the_writers_release(version, fields, expected):
    assert set(possible_releases(version, fields)) == expected


def test_a_verdict_that_depends_on_an_unknown_release_is_possible():
    plan = pending(BEFORE, F, action="clustering", operation_type="CLUSTER", state=State.REQUESTED)
    by_any = [rules(version=8, writer=one) for one in possible_releases(8, None)]
    (conflict,) = judge_by_any(ours(), [plan], by_any).conflicts
    assert conflict.certainty is POSSIBLE
    assert "release" in conflict.reason
    sure = judge_by_any(ours(), [completed(AFTER, 300, F)], by_any)
    assert sure.certainty is CERTAIN
    assert judge_by_any(ours(), [completed(AFTER, 300, G)], by_any).certainty is NONE


def test_a_rival_without_a_heartbeat_is_not_reported_as_expired():
    (expired,) = judge(ours(), [pending(BEFORE, F, live=False)], rules()).conflicts
    (silent,) = judge(ours(), [pending(BEFORE, F, live=False, has_heartbeat=False)], rules()).conflicts
    assert "expired" in expired.reason
    assert "no heartbeat" in silent.reason
    assert silent.certainty is POSSIBLE


@pytest.mark.parametrize(
    ("version", "writer", "fails"),
    [(6, (1, 0), False), (6, (1, 1), False), (6, (1, 2), True), (8, (1, 2), False)],
)
def test_a_clustering_that_prefers_writers_takes_its_own_plan_for_a_rivals(version, writer, fails):
    assert rules(Strategy.PREFER_WRITER, version=version, writer=writer).clustering_fails is fails
