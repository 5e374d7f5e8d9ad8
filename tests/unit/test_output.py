"""What a driver prints, beside a task that logs it more slowly."""

from __future__ import annotations

import threading

import pytest

from airflow_occ_provider.submitters import launcher
from airflow_occ_provider.submitters.launcher import Output
from tests.support.observed import until

LINE = b"x" * 9 + b"\n"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, size in (("BATCH", 20), ("AHEAD", 100), ("LAST", 40), ("LONGEST_LINE", 50)):
        monkeypatch.setattr(launcher, name, size)


def all_of(printed):
    lines = []
    while batch := printed.take(0):
        lines += batch
    return lines


def test_lines_are_returned_in_batches():
    printed = Output()
    assert printed.take(0) == []
    printed.add(b"1\n2\r\n3\r4 \xff\n" + LINE)
    printed.add(b"the end")
    printed.close()
    assert printed.take(0) == ["1\n", "2\n", "3\n", "4 \ufffd\n", "xxxxxxxxx\n"]
    assert printed.take(0) == ["the end"]
    assert printed.take(0) == []


def test_a_long_line_is_returned_in_parts():
    printed = Output()
    printed.add(b"y" * 60 + b"\n")
    assert printed.take(0) == ["y" * 50, "y" * 10 + "\n"]


def test_the_oldest_lines_are_left_out_and_counted_but_for_those_of_hudi():
    printed = Output()
    printed.allow_skipping()
    printed.add(b"first\n" + LINE * 2)
    printed.add(b"HoodieWriteConflictException\n")
    printed.add(LINE * 10 + b"last\n")
    left_out, *lines = all_of_closed(printed)
    assert left_out.split()[:5] == ["12", "lines", "are", "left", "out"]
    assert lines == ["HoodieWriteConflictException\n", "xxxxxxxxx\n", "last\n"]


def all_of_closed(printed):
    printed.close()
    return all_of(printed)


def test_a_job_that_did_not_print_too_much_loses_no_line_at_its_end():
    printed = Output()
    printed.allow_skipping()
    printed.add(LINE * 10)
    assert len(all_of_closed(printed)) == 10


@pytest.mark.parametrize("may_skip", [False, True], ids=["no line", "no line of Hudi"])
def test_lines_that_may_not_be_left_out_wait_for_room(may_skip):
    printed = Output()
    line = LINE
    if may_skip:
        printed.allow_skipping()
        line = b"Hoodie ..\n"
    adding = threading.Thread(target=lambda: [printed.add(line) for _ in range(30)], daemon=True)
    adding.start()
    until(lambda: printed._size > launcher.AHEAD, "lines that wait")
    lines = []
    while adding.is_alive() or printed._size:
        lines += printed.take(0)
    assert len(lines) == 30


def test_lines_that_wait_are_left_out_once_they_may_be():
    printed = Output()
    adding = threading.Thread(target=lambda: printed.add(LINE * 30), daemon=True)
    adding.start()
    until(lambda: printed._size > launcher.AHEAD, "lines that wait")
    printed.allow_skipping()
    until(lambda: not adding.is_alive(), "the end of a job whose output is not read")
    left_out, *lines = all_of_closed(printed)
    assert int(left_out.split()[0]) + len(lines) == 30
