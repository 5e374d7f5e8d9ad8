"""Windows over simulated writers: each commit is read once, whatever the order of completion."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from airflow_occ_provider.hudi.format.instant import Instant, State
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.incremental import checkpoint as module
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, CommitPosition, Order
from airflow_occ_provider.hudi.incremental.window import Pending, next_window

LAYOUTS = {Order.REQUESTED: "1", Order.COMPLETED: "2"}


def commit(requested, completed, action="commit", *, service="", archived=False):
    name = f"{requested}_{completed}.{action}{'.parquet' if archived else ''}"
    plan = f"{requested}.{service or action}.requested"
    return Instant(requested, action, State.COMPLETED, name, completed, plan)


def read(order, *places):
    return Checkpoint(order, "", tuple(CommitPosition(*one) for one in places))


def live(*pending):
    return Pending(pending, frozenset(pending))


def times(window):
    return [one.time for one in window.commits]


@pytest.mark.parametrize("order", Order)
def test_the_layout_decides_the_order(order):
    config = TableConfig({"hoodie.timeline.layout.version": LAYOUTS[order]})
    assert Order.of(config) is order


def test_by_completion_a_late_write_is_in_a_later_window():
    first = next_window(None, Order.COMPLETED, [commit("10", "20")], live("05"))
    assert (times(first), first.end, first.held_up_by) == (["10"], "20", ())
    both = [commit("10", "20"), commit("05", "30")]
    second = next_window(first.checkpoint, Order.COMPLETED, both)
    assert (times(second), second.start, second.end) == (["05"], "20", "30")


def test_by_request_a_live_writer_holds_the_window_up():
    done = [commit("10", "20"), commit("14", "16")]
    held = next_window(None, Order.REQUESTED, done, live("12", "99"))
    assert (times(held), held.end, held.held_up_by) == (["10"], "10", ("12",))
    later = next_window(held.checkpoint, Order.REQUESTED, [*done, commit("12", "30")])
    assert (times(later), later.start, later.end) == (["12", "14"], "10", "14")


def test_nothing_to_read_leaves_the_checkpoint_where_it_is():
    since = read(Order.REQUESTED, ("10", "10"))
    empty = next_window(since, Order.REQUESTED, [commit("10", "20"), commit("12", "13")], live("11"))
    assert (times(empty), empty.checkpoint, empty.start, empty.end) == ([], since, "10", "10")
    assert empty.predicate == "false"
    assert empty.held_up_by == ("11",)


@pytest.mark.parametrize("order", Order)
def test_a_commit_that_became_visible_late_is_read_once(order):
    old, first, last = commit("05", "06"), commit("10", "11"), commit("30", "30")
    since, late = Checkpoint(order, order.position(old)).after([first, last], order), commit("20", "25")
    seen = [old, first, late, last]
    window = next_window(since, order, seen)
    assert times(window) == ["20"]
    assert [one.requested for one in window.checkpoint.read] == ["10", "20", "30"]
    assert window.checkpoint.time == "30"
    assert times(next_window(window.checkpoint, order, seen)) == []


def test_equal_completion_times_do_not_hide_a_commit():
    first = next_window(None, Order.COMPLETED, [commit("10", "20")])
    second = next_window(first.checkpoint, Order.COMPLETED, [commit("10", "20"), commit("11", "20")])
    assert times(second) == ["11"]


@pytest.mark.parametrize("service", ["compaction", "clustering", "logcompaction"])
def test_table_services_bring_no_rows(service):
    done = [commit("10", "20"), commit("11", "21", "replacecommit", service=service)]
    assert times(next_window(None, Order.COMPLETED, done)) == ["10"]


def test_archived_commits_count_by_their_position_alone():
    since = read(Order.COMPLETED, ("10", "11"), ("12", "30"))
    archived = [commit("20", "25", archived=True), commit("31", "35", archived=True)]
    assert times(next_window(since, Order.COMPLETED, archived)) == ["31"]


def test_a_checkpoint_that_people_set_names_only_a_position():
    since = Checkpoint(Order.COMPLETED, "20")
    assert since.time == "20"
    done = [commit("10", "20"), commit("05", "21")]
    assert times(next_window(since, Order.COMPLETED, done)) == ["05"]


def test_a_window_is_cut_after_so_many_commits_but_not_between_equal_ones():
    done = [commit("10", "20"), commit("11", "21"), commit("12", "21"), commit("13", "22")]
    window = next_window(None, Order.COMPLETED, done, most=2)
    assert times(window) == ["10", "11", "12"]
    assert times(next_window(window.checkpoint, Order.COMPLETED, done, most=2)) == ["13"]


def test_after_an_upgrade_only_what_was_not_read_follows():
    since = read(Order.REQUESTED, ("10", "10"), ("12", "12"))
    done = [commit("10", "40"), commit("12", "14"), commit("13", "41")]
    window = next_window(since, Order.COMPLETED, done)
    assert times(window) == ["13"]
    assert window.checkpoint == read(Order.COMPLETED, ("12", "14"), ("10", "40"), ("13", "41"))


def test_the_condition_names_the_commits_of_the_window():
    window = next_window(None, Order.COMPLETED, [commit("11", "20"), commit("10", "21")])
    assert window.predicate == "_hoodie_commit_time in ('10', '11')"


def test_the_first_window_has_the_archived_past_unnamed():
    window = next_window(None, Order.COMPLETED, [commit("11", "20")], archived_before="11")
    assert window.predicate == "(_hoodie_commit_time in ('11') or _hoodie_commit_time < '11')"


def test_a_checkpoint_is_kept_as_json():
    kept = Checkpoint(Order.COMPLETED, "09", (CommitPosition("10", "11"),))
    assert Checkpoint.from_json(kept.to_json()) == kept
    with pytest.raises(ValueError, match="format 9"):
        Checkpoint.from_json({**kept.to_json(), "format": 9})


def test_only_the_youngest_commits_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    done = [commit("10", "20"), commit("12", "22"), commit("11", "21")]
    after = next_window(None, Order.COMPLETED, done).checkpoint
    assert (after.floor, after.time) == ("20", "22")
    assert [one.requested for one in after.read] == ["11", "12"]
    assert after.unread(done) == []


def test_those_that_were_archived_leave_first_and_raise_no_floor(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 2)
    before = next_window(None, Order.COMPLETED, [commit("20", "21"), commit("30", "31")]).checkpoint
    stepped_back = [commit("05", "06"), commit("07", "08")]
    after = next_window(before, Order.COMPLETED, stepped_back).checkpoint
    assert [one.requested for one in after.read] == ["05", "07", "30"]
    assert (after.floor, after.time) == ("", "31")
    assert times(next_window(after, Order.COMPLETED, [*stepped_back, commit("03", "04")])) == ["03"]


def test_an_archived_commit_that_was_pending_is_not_read_by_its_position():
    done = [commit("10", "20"), commit("12", "30")]
    for order in Order:
        first = next_window(None, order, done, Pending(("05", "06")))
        assert first.checkpoint.pending == ("05", "06")
        late = [commit("05", "25", archived=True), commit("04", "26", archived=True)]
        assert times(next_window(first.checkpoint, order, [*late, *done])) == ["05"]


@pytest.mark.parametrize("order", Order)
def test_all_that_were_read_of_the_active_timeline_are_kept(monkeypatch, order):
    monkeypatch.setattr(module, "KEPT", 2)
    done, late = [commit(str(n), str(n)) for n in range(10, 20)], commit("05", "06")
    since = next_window(None, order, done).checkpoint
    assert [one.requested for one in since.read] == list(map(str, range(10, 20)))
    assert since.unread([late, *done]) == [late]
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    since = next_window(None, order, done).checkpoint
    assert ([one.requested for one in since.read], since.floor) == (["17", "18", "19"], "16")


@dataclass
class Writer:
    """A write that takes its time, becomes visible later, and completes."""

    requested: int
    visible: int
    completed: int

    @property
    def time(self):
        return f"{self.requested:06}"

    def instants(self, now):
        done = self.completed <= now
        return [commit(self.time, f"{self.completed:06}")] if done else []

    def pending(self, now):
        return [self.time] if self.visible <= now < self.completed else []


def writers(rng):
    """Return writers with unique completion times, as Hudi's lock gives them."""
    some, taken = [], set()
    for number in range(60):
        requested = number * 7 + rng.randrange(5)
        visible = requested + rng.choice([0, 0, 1, 12])
        completed = visible + rng.randrange(1, 60)
        while completed in taken:
            completed += 1
        taken.add(completed)
        some.append(Writer(requested, visible, completed))
    return some


def looks(rng, some):
    """Yield the moments at which a consumer looks; the last one is after all writes."""
    now, end = 0, max(one.completed for one in some)
    while now <= end:
        yield now
        now += rng.randrange(1, 15)
    yield from [end + 1] * 30


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("seed", range(50))
def test_each_commit_is_read_exactly_once(order, seed):
    rng = random.Random(seed)
    some, read, since = writers(rng), [], None
    for now in looks(rng, some):
        done = [instant for one in some for instant in one.instants(now)]
        pending = [time for one in some for time in one.pending(now)]
        window = next_window(since, order, done, live(*pending), most=rng.choice([3, 1000]))
        read += times(window)
        since = window.checkpoint
    assert sorted(read) == sorted(one.time for one in some)


@pytest.mark.parametrize("seed", range(5))
def test_a_checkpoint_by_the_youngest_instant_loses_commits_in_the_same_runs(seed):
    rng = random.Random(seed)
    some, read, mark = writers(rng), set(), ""
    for now in looks(rng, some):
        done = {instant.time for one in some for instant in one.instants(now)}
        read |= {time for time in done if time > mark}
        mark = max([mark, *done])
    assert len(read) < len(some)


@pytest.mark.parametrize("order", Order)
def test_the_oldest_pending_write_is_remembered_beside_many_commits_that_are_left(order):
    """Hudi archives it first once it has completed."""
    done = [commit(f"{number}", f"{number + 500}") for number in range(1000, 1400)]
    window = next_window(read(order, ("0900", "0901")), order, done, Pending(("0950",)), most=100)
    assert len(window.commits) == 100
    assert window.checkpoint.pending[0] == "0950"
    late = [commit("0950", "2000", archived=True), *done]
    assert "0950" in [one.time for one in window.checkpoint.unread(late)]
