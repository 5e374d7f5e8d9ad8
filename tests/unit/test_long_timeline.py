"""A refresh of a timeline with more files than a page of S3 lists only what may have changed."""

from __future__ import annotations

import random

import pytest

from airflow_occ_provider.attempts.commit import find_commit
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX
from airflow_occ_provider.storage.listing import lists_in_order
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import Observation, WriterWatch
from tests.bench.tables import instants
from tests.support.avro_metadata import RECORD, avro
from tests.support.paged_s3 import WRITTEN, PagedS3
from tests.support.table_properties import table_properties

SIZE = 400
TIMES = [time for time, _, _ in instants(SIZE + 50)]
OLD, NEW = TIMES[20], TIMES[SIZE:]
COMMIT = avro(RECORD)


class LongTable:
    """A table of 400 completed commits: its timeline has two pages."""

    def __init__(self, layout, s3):
        self._s3, self._layout = s3, layout
        self._folder = f"lake/t/.hoodie/{'timeline/' if layout == 2 else ''}"
        properties = table_properties(version=9 if layout == 2 else 6, layout=layout)
        s3.objects["lake/t/.hoodie/hoodie.properties"] = properties.encode()
        for one in TIMES[:SIZE]:
            self.commit(one)
        self.table = HudiTable("s3a://lake/t", s3)
        self.last = self.table.snapshot(self.table.snapshot())

    def put(self, name, content=b""):
        self._s3.objects[self._folder + name] = content

    def remove(self, *names):
        for name in names:
            self._s3.objects.pop(self._folder + name, None)

    def begin(self, time):
        self.put(f"{time}.commit.requested")
        self.put(f"{time}.inflight")

    def commit(self, time, content=COMMIT):
        self.begin(time)
        self.put(self.completed(time), content)

    def completed(self, time, action="commit"):
        return f"{time}_{time}.{action}" if self._layout == 2 else f"{time}.{action}"

    def forget(self, time):
        self.remove(f"{time}.commit.requested", f"{time}.inflight", self.completed(time))

    def beat(self, time):
        self._s3.objects[f"lake/t/.hoodie/.heartbeat/{time}"] = b""

    def refresh(self, **options):
        """Refresh; return the number of requests."""
        self._s3.requests.clear()
        self.last = self.table.snapshot(self.last, **options)
        return len(self._s3.requests)

    def cold(self):
        return HudiTable(self.table.path, self._s3).snapshot()

    def sees_all(self):
        return self.last.timeline.instants == self.cold().timeline.instants


PAGES = 2
PART = 1  # it showed that it was not enough


@pytest.fixture(params=[1, 2], ids=["layout_1", "layout_2"])
def long(request):
    return LongTable(request.param, PagedS3())


def test_a_refresh_is_one_request_and_sees_what_is_new(long):
    long.commit(NEW[0])
    long.begin(NEW[1])
    assert (long.refresh(), long.sees_all()) == (1, True)
    long.put(long.completed(NEW[1]), b"x")
    assert (long.refresh(), long.sees_all()) == (1, True)
    assert not long.last.listing.is_whole
    assert long.last.times(long.last.timeline.find(TIMES[0])).completed_ms


@pytest.mark.parametrize("ends", ["completes", "is rolled back"])
def test_an_older_pending_instant_costs_one_request_more_until_it_ends(long, ends):
    long.remove(long.completed(OLD))
    assert long.refresh(max_age_s=0) > 1  # the whole timeline, and the properties
    assert (long.refresh(), long.sees_all()) == (2, True)
    if ends == "completes":
        long.put(long.completed(OLD), b"x")
        assert (long.refresh(), long.sees_all()) == (2, True)
        assert (long.refresh(), long.sees_all()) == (1, True)
    else:
        long.forget(OLD)
        assert (long.refresh(), long.sees_all()) == (PART + 1 + PAGES, True)
        assert long.last.listing.is_whole


def test_of_many_older_pending_instants_the_whole_timeline_is_listed(long):
    long.remove(*(long.completed(one) for one in TIMES[:9]))
    long.refresh(max_age_s=0)
    long.forget(TIMES[3])
    assert (long.refresh(), long.sees_all()) == (PAGES, True)


@pytest.mark.parametrize("action", ["rollback", "restore"])
def test_while_instants_are_taken_back_the_whole_timeline_is_listed(long, action):
    long.put(f"{NEW[0]}.{action}.requested")
    long.forget(OLD)
    assert (long.refresh(), long.sees_all()) == (PART + PAGES, True)
    long.forget(TIMES[21])
    assert (long.refresh(), long.sees_all()) == (PAGES, True)
    long.put(long.completed(NEW[0], action))
    long.forget(TIMES[22])
    assert (long.refresh(), long.sees_all()) == (PAGES, True)
    assert long.refresh() == 1


def test_a_table_that_was_made_anew_is_listed_whole(long):
    for one in TIMES[:SIZE]:
        long.forget(one)
    for one in NEW[:3]:
        long.commit(one)
    long.refresh()
    assert long.last.listing.is_whole
    assert len(long.last.timeline.instants) == 3


@pytest.mark.parametrize("what", ["archived", "savepoint", "older"])
def test_what_a_refresh_cannot_see_is_seen_once_per_tolerance(long, what):
    if what == "archived":
        long.forget(TIMES[0])
    elif what == "savepoint":
        long.put(long.completed(OLD, "savepoint"), b"x")
    else:
        long.begin(f"{int(OLD) + 1}")
    assert (long.refresh(), long.sees_all()) == (1, False)
    assert long.last.whole().timeline.instants != long.last.timeline.instants
    long.refresh(max_age_s=0)
    assert long.sees_all()


def test_no_conclusion_is_drawn_from_a_part_of_the_timeline(long):
    late = f"{int(OLD) + 1}"  # as of a writer whose clock is behind by hours
    record = {**RECORD, "extraMetadata": {f"{SIGNATURE_PREFIX}identity": "me"}}
    long.commit(late, avro(record))
    long.refresh()
    assert long.last.timeline.find(late) is None
    assert find_commit(long.last, "me").instant.time == late
    assert Observation({}, long.last, None).writer(late).fate is Fate.COMMITTED


def test_a_live_writer_whose_clock_is_behind_is_watched(long):
    late = f"{int(OLD) + 1}"
    watch = WriterWatch(long.table, clock_ms=lambda: round(WRITTEN.timestamp() * 1000) + 1000)
    watch.observe()
    long.begin(late)
    long.beat(late)
    assert watch.observe().writer(late).fate is Fate.ALIVE
    assert list(watch.observe().pending) == [late]


def test_a_server_that_lists_from_the_beginning_is_asked_for_the_whole_timeline():
    long = LongTable(2, PagedS3(knows_start=False))
    long.forget(OLD)
    long.refresh()
    assert (long.last.listing.is_whole, long.sees_all()) == (True, True)


def test_a_directory_bucket_cannot_be_listed_in_part():
    assert lists_in_order(PagedS3(), "lake/t/.hoodie")
    assert not lists_in_order(PagedS3(), "lake--use1-az4--x-s3/t/.hoodie")


@pytest.mark.parametrize("seed", range(4))
def test_a_refresh_is_a_cold_read_whatever_writers_do(long, seed):
    """What is archived may stay until the next whole listing."""
    draw, pending, fresh, partial = random.Random(seed), [], iter(NEW), 0
    for step in range(25):
        what = draw.choice(["begin", "commit", "commit", "roll back", "archive"])
        if what == "begin" or not pending:
            pending.append(next(fresh))
            long.begin(pending[-1])
        elif what == "archive":
            long.forget(TIMES[step])
        else:
            one = pending.pop(draw.randrange(len(pending)))
            if what == "commit":
                long.put(long.completed(one), b"x")
            else:
                rollback = next(fresh)
                long.put(f"{rollback}.rollback.requested")
                long.forget(one)
                long.put(long.completed(rollback, "rollback"), b"x")
        long.refresh()
        partial += not long.last.listing.is_whole
        cold = long.cold()
        archived = [one for one in long.last.timeline if cold.timeline.find(one.time) is None]
        assert all(one.time < TIMES[step + 1] for one in archived)
        assert set(long.last.timeline) - set(archived) == set(cold.timeline)
    assert partial
