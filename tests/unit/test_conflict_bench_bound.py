"""The lower bound of ``make rig NAME=bench.conflict``: no arm is shorter, and all arms have the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.bench.conflict import bound, measures
from tests.unit.conflict_runs import FAR, A, B, C, done, lost, mutant_of, run_of
from tests.unit.conflict_schedules import round_of_runs, rounded

# The start-ups overlap, and so do the ends: b's write begins when a's is complete.
SIDE_BY_SIDE = run_of([A, B], done("a", 1, 0, 14, (4, 12)), done("b", 1, 0, 21, (12, 19)))
SEEDS = range(60)


def check(module):
    """Check a module of bounds by runs whose bounds are known, and by random schedules."""
    assert module.exclusive_s(SIDE_BY_SIDE) == {"a": 8, "b": 7}
    assert module.longest_chain_s([SIDE_BY_SIDE]) == 4 + 15
    assert module.lower_bound_s([SIDE_BY_SIDE]) == 19 < measures.makespan_s(SIDE_BY_SIDE)
    check_chains(module)
    check_exclusive(module)
    check_rounds(module)
    check_random_schedules(module)


def check_chains(module):
    # b conflicts with both, but these not with each other.
    path = run_of([A, B, C], done("a", 1, 0, 5), done("b", 1, 5, 12), done("c", 1, 12, 15))
    assert module.longest_chain_s([path]) == 12
    assert module.longest_chain_s([run_of([A])]) == 0
    assert [module.is_one_chain(run_of(jobs)) for jobs in ([A, B], [B, C], [A, B, C])] == [1, 1, 0]
    # Each conflicts with each in another partition.
    corner = replace(B, writer="corner")
    three = run_of(
        [A, corner, B], done("a", 1, 0, 5), done("corner", 1, 5, 9), done("b", 1, 9, 11, (9, 11))
    )
    assert module.longest_chain_s([three]) == 11
    # The shortest start-up counts only in a chain to which it belongs.
    apart = run_of([A, FAR], done("a", 1, 0, 9, (3, 9)), done("far", 1, 0, 2, (1, 2)))
    assert module.longest_chain_s([apart]) == 9


def check_exclusive(module):
    # b did not see a's write, which completed just after its request.
    unseen = run_of([A, B], done("a", 1, 0, 9, (2, 8)), done("b", 1, 0, 16, (7.5, 15)))
    assert module.exclusive_s(unseen) == {"a": 6, "b": 7}
    far = run_of([A, FAR], done("a", 1, 0, 9, (2, 8)), done("far", 1, 0, 16, (7.5, 15)))
    assert module.exclusive_s(far) == {"a": 6, "far": 7.5}
    # Neither what Hudi refused within the driver nor what a second commit took.
    within = run_of([A], done("a", 1, 0, 30, (22, 29), refused=2, refused_s=18))
    assert module.exclusive_s(within) == {"a": 7}
    assert module.start_up_s(within) == {"a": 4}
    twice = run_of([A], done("a", 2, 10, 30, (12, 29)), done("a", 1, 0, 8, (3, 7)))
    assert module.exclusive_s(twice) == {"a": 4}
    gone = replace(done("b", 1, 0, 9), requested_s=None, completed_s=None)
    given_up = run_of([A, B], lost("a", 1, 0, 4), gone)
    assert module.exclusive_s(given_up) == module.start_up_s(given_up) == {}
    assert module.lower_bound_s([given_up]) == 3  # b's driver did work
    done_elsewhere = run_of([A, B], done("a", 1, 0, 6), done("b", 1, 6, 15))
    assert module.lower_bound_s([given_up, done_elsewhere]) == 15
    assert module.work_over_slots_s([given_up, done_elsewhere]) == 5


def check_rounds(module):
    slow = run_of([A, B], done("a", 1, 0, 20, (5, 20)), done("b", 1, 0, 24, (20, 24)), arm="f")
    assert module.longest_chain_s([SIDE_BY_SIDE, slow]) == 4 + 8 + 4
    other = replace(slow, turn=1)
    found = module.bounds([SIDE_BY_SIDE, slow, other])
    assert found == {module.round_of(slow): 16, module.round_of(other): 24}
    jobs = [replace(A, writer=f"w{n}", partitions=(f"p{n}",)) for n in range(4)]
    spread = run_of(jobs, *(done(job.writer, 1, n, n + 6) for n, job in enumerate(jobs)), slots=2)
    assert module.lower_bound_s([spread]) == 12  # work over slots
    # Alone in its pool each driver is faster, but a second of it is a whole second of the run.
    events = [done(job.writer, 1, 4 * n, 4 * n + 4) for n, job in enumerate(jobs)]
    alone = run_of(jobs, *events, arm="d", slots=1)
    assert module.lower_bound_s([spread, alone]) == 12
    refused = replace(spread, events=tuple(replace(one, refused_s=1) for one in spread.events))
    assert module.work_over_slots_s([spread, refused]) == 10


def check_random_schedules(module):
    for seed in SEEDS:
        check_schedules(module, random.Random(seed))


def check_schedules(module, rng):
    runs = round_of_runs(rng)
    bound_s = module.lower_bound_s(runs)
    assert all(measures.makespan_s(run) >= bound_s > 0 for run in runs)
    recorded = [rounded(run) for run in runs]
    recorded_s = module.lower_bound_s(recorded)
    assert all(measures.makespan_s(run) >= recorded_s - 1e-9 for run in recorded)
    assert recorded_s == pytest.approx(bound_s, abs=0.02)


def test_no_schedule_is_shorter_than_the_bound():
    check(bound)


def test_the_bound_is_near_the_best_schedule():
    """So that it is no bound of zero: in most rounds the best arm is within twice of it."""
    ratios = []
    for seed in SEEDS:
        runs = round_of_runs(random.Random(seed))
        ratios.append(min(map(measures.makespan_s, runs)) / bound.lower_bound_s(runs))
    assert sorted(ratios)[len(ratios) // 2] < 2


def test_digits_that_are_not_recorded_change_no_measure():
    for seed in SEEDS:
        for run in round_of_runs(random.Random(seed)):
            short = rounded(run)
            some, others = measures.works(run), measures.works(short)
            assert measures.waste(some) == pytest.approx(measures.waste(others), abs=0.01)
            assert measures.tries_per_commit(some) == measures.tries_per_commit(others)
            assert measures.makespan_s(run) == pytest.approx(measures.makespan_s(short), abs=0.001)
            assert bound.exclusive_s(run) == pytest.approx(bound.exclusive_s(short), abs=0.002)


MUTANTS = [
    # The seconds of whole drivers, without their start, or without their end.
    ("since_s = max([requested_s, *(", "since_s = max([0, *("),
    ("found[job.writer] = completed_s - since_s", "found[job.writer] = run.events[0].seconds"),
    ("yield one.completed_s, one.requested_s, job", "yield one.end_s, one.requested_s, job"),
    ("yield one.completed_s, one.requested_s, job", "yield one.completed_s, one.start_s, job"),
    # A bound for each arm of its own, or the greatest of them.
    ("return max(longest_chain_s(runs),", "return max(longest_chain_s(runs[-1:]),"),
    ("work_over_slots_s(runs))\n", "work_over_slots_s(runs[:1]))\n"),
    ("key: min(value,", "key: max(value,"),
    ("return Round(run.workload, run.turn,", "return Round(run.workload, 0,"),
    # Jobs that do not conflict, in a chain; or conflicting ones that are in none.
    ("            if all(conflict(one, other) for", "            if any(conflict(one, other) for"),
    ("if all(conflict(one, other) for one, other in combinations(chain, 2))", "if True"),
    ("not set(one.partitions).isdisjoint(other.partitions)", "one.partitions == other.partitions"),
    ("for size in range(1, len(jobs) + 1)", "for size in range(1, len(jobs))"),
    ("for size in range(1, len(jobs) + 1)", "for size in range(1, 3)"),
    ("    return all(conflict(one, other)", "    return any(conflict(one, other)"),
    # Rivals that completed unseen, and those that do not conflict.
    ("for rival, at_s in before if conflict(job, rival))", "for rival, at_s in ())"),
    ("for rival, at_s in before if conflict(job, rival))", "for rival, at_s in before)"),
    # Start-ups.
    ("min(start_up[one] for one in chain)", "0"),
    ("min(start_up[one] for one in chain)", "max(start_up[one] for one in chain)"),
    ("min(start_up[one] for one in chain)", "sum(start_up[one] for one in chain)"),
    ("min(start_up[one] for one in chain)", "min(start_up.values())"),
    ("one.requested_s - one.start_s - one.refused_s", "one.requested_s - one.start_s"),
    # Slots.
    ("work.useful_s / run.slots", "work.useful_s / 3"),
    ("work.useful_s / run.slots", "(work.useful_s + work.wasted_s) / run.slots"),
    ("        if work.is_done\n", ""),
    ("return max(longest_chain_s(runs), work_over_slots_s(runs))", "return longest_chain_s(runs)"),
    ("return max(longest_chain_s(runs), work_over_slots_s(runs))", "return work_over_slots_s(runs)"),
    # The first of two commits.
    ("yield job, done[0]", "yield job, done[-1]"),
]


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_a_bound_with_a_fault_is_found(old, new, monkeypatch):
    mutant = mutant_of(bound, old, new, monkeypatch)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check(mutant)


def test_whole_drivers_in_a_chain_are_no_bound():
    """What the benchmark took for one: the makespan was 0.57 of it."""
    seconds = sum(work.useful_s for work in measures.works(SIDE_BY_SIDE))
    assert measures.makespan_s(SIDE_BY_SIDE) < seconds


def test_random_schedules_alone_find_that_whole_drivers_are_no_bound(monkeypatch):
    mutant = mutant_of(bound, *MUTANTS[3], monkeypatch)
    with pytest.raises(AssertionError):
        check_random_schedules(mutant)
