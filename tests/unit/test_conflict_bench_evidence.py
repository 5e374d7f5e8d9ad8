"""What ``make rig NAME=bench.conflict`` reads from rows and timelines."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_occ_provider.hudi.conflict.operation import Times
from tests.bench.conflict.events import from_line, to_line
from tests.bench.conflict.found_rows import compare, read_rows
from tests.bench.conflict.instants import Span, span_of, times_of_writes, with_spans
from tests.bench.conflict.job import own_keys, writer_of
from tests.unit.beating import BeatingTable, instant
from tests.unit.conflict_runs import A, B, C, done, lost, run_of

BEGAN_S = 1_000.0


def times(requested_s, completed_s):
    """Times of an instant that was inflight a second before its completion."""
    ends_ms = (round((BEGAN_S + one) * 1000) for one in (requested_s, completed_s - 1, completed_s))
    return Times(*ends_ms)


def spans(events, instants, found):
    return [(one.requested_s, one.completed_s) for one in with_spans(events, instants, found, BEGAN_S)]


def bare(event):
    return replace(event, requested_s=None, completed_s=None)


def test_a_write_is_exclusive_from_its_request_and_not_only_once_it_is_inflight():
    assert span_of(times(2.25, 9), BEGAN_S) == (2.25, 9)
    events = [bare(done("a", 1, 0, 10)), lost("b", 1, 0, 10)]
    found = spans(events, {"a": {"i1"}, "b": {"i1"}}, {"i1": times(2.25, 9)})
    assert found == [(2.25, 9), (None, None)]


def test_a_write_belongs_to_the_driver_in_whose_time_it_began():
    events = [bare(done("a", 1, 0, 10)), bare(done("a", 2, 12, 30))]
    found = {"i1": times(2, 9), "i2": times(14, 29), "of_b": times(3, 8)}
    assert spans(events, {"a": {"i1", "i2"}, "b": {"of_b"}}, found) == [(2, 9), (14, 29)]


def test_a_write_without_rows_or_without_a_trace_has_no_span():
    event = bare(done("a", 1, 0, 10))
    assert spans([event], {}, {"i1": times(2, 9)}) == [(None, None)]
    assert spans([event], {"a": {"i1"}}, {}) == [(None, None)]
    assert span_of(Times(None, 1, 2), BEGAN_S) is None
    assert span_of(Times(1, 1, None), BEGAN_S) is None
    assert span_of(None, BEGAN_S) is None
    assert isinstance(span_of(Times(1_000_000, None, 1_000_001), BEGAN_S), Span)


def test_the_writer_of_a_key_is_known():
    assert {writer_of(key) for key in own_keys("w-1", "p0")} == {"w-1"}


@pytest.fixture
def table(tmp_path):
    """Two writes of a partition, the second of which is still under way."""
    found = BeatingTable(tmp_path / "t", layout=1)
    (found.path / "p0").mkdir()
    for number, rows in ((1, [("base-0", 1)]), (2, [("base-0", 1), ("a-p0-0", 2)])):
        write(found, number, rows)
        (found.path / ".hoodie" / f"{instant(number)}.commit").write_text("{}")
        for name, second in (("commit.requested", 10), ("inflight", 18), ("commit", 20)):
            at_ns = (number * 100 + second) * 1_000_000_000
            os.utime(found.path / ".hoodie" / f"{instant(number)}.{name}", ns=(at_ns, at_ns))
    write(found, 3, [("base-0", 1), ("a-p0-0", 2), ("b-p0-0", 3)])
    return found.path


def write(table, number, rows):
    """Write the partition's file anew."""
    table.request(instant(number))
    ids, times = zip(*rows, strict=True)
    columns = {"id": ids, "_hoodie_commit_time": [instant(one) for one in times]}
    pq.write_table(pa.table(columns), table.path / "p0" / f"f_0-0-0_{instant(number)}.parquet")


def test_the_writes_of_rows_are_those_of_the_timeline(table):
    found = read_rows(table)
    assert (found.keys, found.others) == ({"a-p0-0": 1}, 1)
    assert found.instants == {"a": {instant(2)}}
    event = bare(done("a", 1, 5, 25))
    (read,) = with_spans([event], found.instants, times_of_writes(table), 200)
    assert (read.requested_s, read.completed_s) == (10, 20)


def test_lines_of_an_older_version_are_refused_with_their_run():
    run = run_of([A], done("a", 1, 0, 4, (1, 3)))
    assert from_line(to_line(run)) == run
    older = to_line(run).replace('"requested_s": 1, ', "")
    with pytest.raises(ValueError, match=r"requested_s: an event of hot \(a\), round 0"):
        from_line(older)


def test_rows_that_are_lost_or_doubled_are_counted():
    found = Counter(own_keys("a", "p0") + own_keys("b", "p0")[1:] + own_keys("b", "p1"))
    found["a-p0-0"] += 2
    assert compare(found, [A, B], [done("a", 1, 0, 1), done("b", 1, 0, 1)]) == (1, 2)
    assert compare(found, [A, B, C], [done("a", 1, 0, 1), lost("c", 1, 0, 1)]) == (0, 2)
