"""The pure parts of ``make rig NAME=bench.conflict``: what it computes from events made by hand."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from airflow_occ_provider.attempts.write_spec import WritePolicy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from tests.bench.conflict import by_hand, measures
from tests.bench.conflict.arms import ARMS, in_turn
from tests.bench.conflict.bootstrap import interval
from tests.bench.conflict.bound import conflict
from tests.bench.conflict.events import Run, from_line, to_line
from tests.bench.conflict.goals import goals
from tests.bench.conflict.job import OPTIONS, WRITE_BEGINS, checks_for, pauses
from tests.bench.conflict.place import Place
from tests.bench.conflict.plot import plot
from tests.bench.conflict.summary import summaries
from tests.bench.conflict.table import table
from tests.bench.conflict.workloads import HOT, Size, jobs_of
from tests.unit.conflict_runs import FAR, A, B, done, lost, mutant_of, run_of

# Two conflict: b loses 10 s, then commits. The third is far away.
RETRIED = run_of(
    [A, B, FAR],
    done("a", 1, 0, 8),
    lost("b", 1, 0, 10),
    done("b", 2, 12, 20),
    done("far", 1, 1, 5),
)


def check(module):
    """Check a module of measures by runs whose results are known."""
    works = module.works(RETRIED)
    assert [(one.useful_s, one.wasted_s, one.tries) for one in works] == [
        (8, 0, 1),
        (8, 10, 2),
        (4, 0, 1),
    ]
    assert module.waste(works) == 0.5
    assert module.tries_per_commit(works) == 4 / 3
    assert module.makespan_s(RETRIED) == 20
    assert module.stretch(RETRIED, 16) == 20 / 16
    check_edges(module)


def check_edges(module):
    within = run_of([A], done("a", 1, 0, 12, refused=2, refused_s=9))
    (work,) = module.works(within)
    assert (work.useful_s, work.wasted_s, work.tries) == (3, 9, 3)
    twice = run_of([A], done("a", 2, 6, 9), done("a", 1, 0, 4))
    (work,) = module.works(twice)
    assert (work.useful_s, work.wasted_s, work.commits) == (4, 3, 2)
    given_up = run_of([A, FAR], lost("a", 1, 0, 4), lost("a", 2, 5, 7), done("far", 1, 0, 2))
    assert module.unfinished(given_up) == 1
    assert module.unfinished(twice) == 0
    assert module.waste(module.works(given_up)) == 3
    assert math.isinf(module.stretch(given_up, 2))
    nothing = run_of([A], lost("a", 1, 0, 4))
    assert math.isinf(module.waste(module.works(nothing)))
    assert math.isinf(module.tries_per_commit(module.works(nothing)))
    assert (module.makespan_s(run_of([A])), module.waste(module.works(run_of([A])))) == (0, 0)
    assert math.isinf(module.stretch(run_of([A], done("a", 1, 0, 4)), 0))
    long = replace(A, is_long=True)
    beaten = run_of(
        [long, B], lost("a", 1, 0, 3), done("a", 2, 3, 9), lost("b", 1, 0, 1), done("b", 2, 2, 3)
    )
    assert module.defeats_of_long(beaten) == 1
    assert module.defeats_of_long(run_of([long], lost("a", 1, 0, 3))) == 1
    assert module.defeats_of_long(run_of([long], done("a", 1, 0, 3, refused=1, refused_s=2))) == 1


def test_what_a_run_came_to():
    check(measures)


MUTANTS = [
    ("key=lambda one: one.end_s", "key=lambda one: -one.end_s"),
    ("done[0].seconds - done[0].refused_s if", "done[0].seconds if"),
    ("Work(useful_s, spent_s - useful_s", "Work(useful_s, spent_s"),
    ("== writer and one.committed)", "== writer)"),
    ("len(own) + sum(one.refused for one in own)", "len(own)"),
    ("return self.commits > 0", "return True"),
    ("return wasted_s / useful_s", "return wasted_s / (wasted_s + useful_s)"),
    ('return float("inf") if wasted_s else 0.0', "return 0.0"),
    ("sum(one.tries for one in some) / done", "len(some) / done"),
    ('/ done if done else float("inf")', "/ done if done else 1.0"),
    ("sum(one.is_done for one in some)", "sum(one.commits for one in some) or 1"),
    ("max((one.end_s for one in run.events)", "max((one.seconds for one in run.events)"),
    ("makespan_s(run) / bound_s if bound_s", "bound_s / makespan_s(run) if bound_s"),
    ("if bound_s and not unfinished(run)", "if bound_s"),
    ("if bound_s and", "if"),
    ("if job.is_long\n", "if True\n"),
    ("work.tries - min(work.commits, 1)", "work.tries - 1"),
    ("sum(not one.is_done for", "sum(one.is_done for"),
]


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_a_measure_with_a_fault_is_found(old, new, monkeypatch):
    mutant = mutant_of(measures, old, new, monkeypatch)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        check(mutant)


def test_a_run_comes_back_from_its_line():
    run = replace(RETRIED, lost=1, doubled=2)
    assert from_line(to_line(run)) == run


def test_an_interval_is_seeded_and_holds_its_value():
    sample = [[1, 2, 3], [2, 3, 10]]
    mean = lambda some: sum(some) / len(some)  # noqa: E731
    found = interval(mean, sample)
    assert found == interval(mean, sample)
    assert found.low < found.value == 3.5 < found.high
    assert found != interval(mean, sample, seed=8)
    assert interval(mean, [[4, 4], [4]]) == (4, 4, 4)
    assert str(interval(mean, [[4]])) == "4.00"


def test_an_interval_of_two_samples_is_that_of_their_difference():
    found = interval(lambda some, others: sum(some) - sum(others), [[5], [6]], [[1], [1]])
    assert found == (9, 8, 10)


def test_whole_runs_are_drawn_and_not_only_their_writers():
    """Two runs that differ are more uncertain than one that holds the same writers."""
    mean = lambda some: sum(some) / len(some)  # noqa: E731
    apart, together = interval(mean, [[1] * 8, [9] * 8]), interval(mean, [[1, 9] * 8])
    assert (apart.low, apart.high) == (1, 9)
    assert together.low > 2


@pytest.mark.parametrize("workload", ["hot", "mixed", "skewed"])
def test_a_seed_gives_one_workload(workload):
    size = Size(6, 4.0)
    jobs = jobs_of(workload, size, 7)
    assert jobs == jobs_of(workload, size, 7) != jobs_of(workload, size, 8)
    assert len({job.writer for job in jobs}) == len(jobs)


def test_the_workloads_are_what_their_names_say():
    size = Size(6, 4.0)
    assert {job.partitions for job in jobs_of("hot", size, 1)} == {(HOT,)}
    mixed = Counter(job.partitions for job in jobs_of("mixed", size, 1))
    assert mixed.pop((HOT,)) * 3 == size.more
    assert set(mixed.values()) == {1}
    jobs = jobs_of("skewed", size, 1)
    (long,) = (job for job in jobs if job.is_long)
    assert long in jobs[:3]
    short = [job for job in jobs if job is not long]
    assert long.pause_s > 2 * max(job.pause_s for job in short)
    assert sum(conflict(long, job) for job in short) == len(short) // 2 == 4


def test_every_other_round_runs_in_reverse():
    assert [in_turn("abc", turn) for turn in range(4)] == ["abc", "cba", "abc", "cba"]


def test_what_hudi_refuses_within_a_driver_is_read_from_its_log():
    refusals = by_hand.Refusals()
    for at_s, line in enumerate(
        [
            f"{by_hand.REPEATS} 0",
            WRITE_BEGINS,
            "INFO",
            f"WARN {by_hand.REPEATS} 1",
            f"{by_hand.REPEATS} 2",
        ]
    ):
        refusals.feed(line, at_s)
    assert (refusals.count, refusals.seconds) == (2, 3)


def test_a_failed_driver_is_named_by_its_log():
    late = "\nCaused by: HoodieWriteConflictException"
    early = "\nCaused by: HoodieEarlyConflictDetectionException"
    assert by_hand.outcome_of(early + late) == "early_conflict"
    assert by_hand.outcome_of(late) == "commit_conflict"
    assert by_hand.outcome_of("ValueError") == "job_error"


def test_delays_double_up_to_a_limit():
    waits = list(by_hand.delays(random.Random(1)))
    assert len(waits) == by_hand.TRIES - 1
    assert 2 <= waits[0] <= 4 <= waits[1] <= 8
    assert max(waits) <= by_hand.LONGEST_DELAY_S


def test_a_job_pauses_before_its_profile_and_before_its_commit():
    before_s, after_s = pauses(8)
    assert before_s + after_s == 8
    assert after_s > before_s > 0
    found = checks_for(1.5)
    assert "select java_method('java.lang.Thread', 'sleep', 1500L)#null" in found.values()
    assert len(found) == 2
    assert not found.keys() & OPTIONS.keys()


def test_the_arms_differ_in_one_thing():
    options = {letter: by_hand.options_of(ARMS[letter], "zk:1") for letter in "abcd"}
    assert options["a"] == options["d"]
    assert {key.rsplit(".", 1)[-1] for key in options["b"].keys() - options["a"].keys()} >= {"enable"}
    assert options["c"].keys() - options["a"].keys() == {by_hand.RETRIES_IN_JOB}
    usual = ARMS["e"]
    for arm in map(ARMS.get, "hijk"):
        assert replace(arm, letter="e", title=usual.title, without="") == usual
    undetected = ARMS["m"]
    assert replace(undetected, letter="e", title=usual.title, is_undetected=False) == usual
    assert replace(ARMS["n"], letter="m", title=undetected.title, without="") == undetected
    policies = {letter: WritePolicy(**ARMS[letter].policy) for letter in "em"}
    assert policies["m"] == replace(policies["e"], early_conflict_detection=EarlyDetection.OFF)


def test_the_times_of_drivers_are_read(tmp_path):
    place = Place(tmp_path, "/t", "r", "zk:1", {}, None, 100.0)
    times = place.times(A, 1)
    assert list(place.spans(times)) == []
    times.write_text("started 101.5\nended 103\nstarted 104\n")
    (first, last) = place.spans(times)
    assert first == (1.5, 3)
    assert last[0] == 4 < last[1]  # killed: it ended by now


def test_events_are_kept_by_writer_and_read_in_order(tmp_path):
    place = Place(tmp_path, "/t", "r", "zk:1", {}, None, 100.0)
    events = [done("b", 2, 5, 6), done("a", 1, 1, 2), lost("b", 1, 0, 4)]
    for event in events:
        place.keep(event)
    assert place.events() == sorted(events, key=lambda one: one.start_s)


def arm(letter, workload="hot", jobs=(A, B), **given):
    """A run whose writers waste some seconds together, and whose makespan is given."""
    wasted_s, ends_s = given.pop("wasted_s", 0), given.pop("ends_s", 20)
    ends = [ends_s - 10 * number for number in range(len(jobs))]
    events = [done(job.writer, 2, end - 10, end) for job, end in zip(jobs, ends, strict=True)]
    events += [lost(job.writer, 1, 0, wasted_s / len(jobs)) for job in jobs if wasted_s]
    return Run(workload, letter, given.pop("turn", 0), 7, 3, tuple(jobs), tuple(events), **given)


def verdicts(*runs):
    return {goal.text: goal.met for goal in goals(summaries(runs))}


def test_the_goals_of_a_good_hot_run_are_met():
    found = verdicts(arm("a", wasted_s=20), arm("d"), arm("e", wasted_s=5), arm("f"))
    assert all(found.values()), found
    assert len(found) == 10


def test_a_makespan_below_the_bound_is_named():
    assert verdicts(arm("a"), arm("d"))["hot: least makespan / bound"] is True
    wrong = run_of([A, FAR], done("a", 1, 0, 10), done("far", 1, 0, 10), arm="d", slots=1)
    assert verdicts(wrong)["hot: least makespan / bound"] is False


@pytest.mark.parametrize(
    ("letter", "given", "missed"),
    [
        ("f", {"wasted_s": 1}, "hot (f): waste"),
        ("f", {"ends_s": 23}, "hot (f): makespan / bound"),
        ("f", {"ends_s": 23}, "hot (f): makespan / that of (a), low"),
        ("f", {"wasted_s": 1}, "hot (f): waste over that of (d), low"),
        ("e", {"wasted_s": 6}, "hot (e): waste"),
        ("e", {"ends_s": 22}, "hot (e): makespan / that of (a), low"),
        ("e", {"lost": 1}, "hot (e): lost, doubled, given up"),
        ("f", {"doubled": 1}, "hot (f): lost, doubled, given up"),
    ],
)
def test_a_goal_that_is_not_met_is_named(letter, given, missed):
    runs = [arm("a", wasted_s=20), arm("d"), arm(letter, **given)]
    assert verdicts(*runs)[missed] is False


def test_the_share_of_the_best_is_that_of_the_one_that_wastes_least():
    runs = [arm("a", wasted_s=20), arm("b", wasted_s=12), arm("e", wasted_s=5)]
    assert verdicts(*runs)["hot (e): waste, a third of the best of (a-c)"] is False


def test_the_pool_is_compared_where_true_conflicts_are_no_chain():
    jobs = (A, FAR)
    slow, fast = arm("d", "mixed", jobs, ends_s=30), arm("f", "mixed", jobs, ends_s=10)
    assert verdicts(slow, fast)["mixed (f): makespan / that of (d)"] is True
    slower = arm("f", "mixed", jobs, ends_s=31)
    assert verdicts(slow, slower)["mixed (f): makespan / that of (d)"] is False


def test_the_long_writer_must_not_lose():
    jobs = (A, replace(B, is_long=True))
    lone = arm("e", "skewed", jobs)
    assert verdicts(lone)["skewed (e): defeats of the long writer"] is True
    beaten = arm("e", "skewed", jobs, wasted_s=3)
    assert verdicts(beaten)["skewed (e): defeats of the long writer"] is False


def test_the_table_and_the_plot_show_each_arm():
    found = summaries([arm("a", wasted_s=20), arm("a", turn=1), arm("f"), arm("f", "mixed")])
    text = table(found)
    assert "hot, 2 writers, runs of each arm: 2" in text
    assert "(f) HudiWriteOperator with scope" in text
    root = ET.fromstring(plot(found))  # noqa: S314 - our own
    assert {child.tag.split("}")[1] for child in root} >= {"title", "desc", "rect"}
