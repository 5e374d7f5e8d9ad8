"""The driver's report: written as a whole, and bounded."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from airflow_occ_provider.in_driver import report as in_driver


def line(number):
    return b"airflow_occ_provider: %d\n" % number


class Storage:
    """Keeps what was written; refuses the first ``refusals`` requests."""

    def __init__(self, refusals=0):
        self.refusals, self.written, self.reasons = refusals, [], []
        self.seen = threading.Event()

    def say(self, fact, reason):
        self.reasons.append((fact, reason))

    def write(self, content):
        if self.refusals:
            self.refusals -= 1
            raise PermissionError("not for you")
        self.written.append(content)
        self.seen.set()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(in_driver, "PERIOD_S", 0.01)
    monkeypatch.setattr(in_driver, "PAUSE_S", 0.01)


def started(storage):
    report = in_driver.Report(storage.write, storage.say)
    of_jvm = Path(report.path).open("ab", buffering=0)  # noqa: SIM115
    report.start()
    report.hide()
    assert not Path(report.path).exists()
    return report, of_jvm


def test_lines_of_both_processes_are_copied_while_the_job_runs(quick):
    storage = Storage()
    report, of_jvm = started(storage)
    report.add(line(1))
    of_jvm.write(line(2) + b"a cut li")
    while not storage.written or line(2) not in storage.written[-1]:
        assert storage.seen.wait(60)
    of_jvm.write(b"ne\n")
    report.add(line(3))
    report.close()
    of_jvm.close()
    assert sorted(storage.written[-1].splitlines(keepends=True)) == [
        b"a cut line\n",
        *map(line, (1, 2, 3)),
    ]


@pytest.mark.parametrize("other", [b"", line(7)])
def test_a_job_that_closes_what_is_open_keeps_its_report(quick, tmp_path, other):
    """Another file gets the number of the closed one; it is the job's own."""
    storage = Storage()
    report, of_jvm = started(storage)
    number = report._of_jvm.fileno()
    os.close(number)
    if other:
        (tmp_path / "of_the_job").write_bytes(other)
        opened = os.open(tmp_path / "of_the_job", os.O_RDONLY)
        os.dup2(opened, number)
    report.add(line(1))
    assert report.close()
    of_jvm.close()
    assert storage.written[-1] == line(1)


def test_nothing_is_written_again_if_nothing_is_new(quick):
    storage = Storage()
    report, of_jvm = started(storage)
    report.add(line(1))
    assert storage.seen.wait(60)
    report.close()
    of_jvm.close()
    assert storage.written == [line(1)]


def test_a_refused_report_is_told_once_and_written_later(quick):
    storage = Storage(refusals=3)
    report, of_jvm = started(storage)
    report.add(line(1))
    assert storage.seen.wait(60)
    report.close()
    of_jvm.close()
    assert storage.written == [line(1)]
    assert storage.reasons == [("report_refused", "PermissionError: not for you")]


def test_a_report_that_was_not_started_is_written_at_its_end():
    storage = Storage()
    report = in_driver.Report(storage.write, storage.say)
    report.add(line(1))
    report.close()
    assert storage.written == [line(1)]
    assert not Path(report.path).exists()


def test_a_storage_that_never_answers_does_not_keep_the_driver():
    never = threading.Event()
    report = in_driver.Report(lambda _: never.wait(60), print)
    report.add(line(1))
    report.close(0.05)
    assert report._thread.is_alive()
    never.set()
    report._thread.join(60)


def test_a_fact_is_written_at_once_unless_many_were_of_late():
    allowance = in_driver.Allowance(30, now_s=0, burst=20)
    assert [allowance.takes(second) for second in range(20)] == 20 * [True]
    written = [second for second in range(20, 620) if allowance.takes(second)]
    assert len(written) == 20
    assert {later - earlier for earlier, later in pairwise(written)} == {30}
    assert all(allowance.takes(10_000) for _ in range(20)), "after a pause there is a burst again"
    assert not allowance.takes(10_000)


def test_a_report_whose_writes_cost_nothing_is_never_held_back():
    allowance = in_driver.Allowance(0, now_s=0, burst=1)
    assert all(allowance.takes(0) for _ in range(1000))


def test_the_end_is_written_though_no_write_is_left(quick, monkeypatch):
    monkeypatch.setattr(in_driver, "BURST", 0)
    storage = Storage()
    report = in_driver.Report(storage.write, storage.say, pause_s=3600)
    report.start()
    report.add(line(1))
    assert not storage.seen.wait(0.1)
    report.close()
    assert storage.written == [line(1)]


def bounded(numbers, most=200):
    lines = in_driver.Lines(most)
    for number in numbers:
        lines.add([line(number)])
    return lines.content()


def test_of_a_long_report_the_first_and_the_last_lines_are_kept():
    each = len(line(10))
    content = bounded(range(10, 60), most=5 * each).splitlines(keepends=True)
    assert content[:5] == [line(number) for number in range(10, 15)]
    assert content[5] == b'{"fact": "left_out", "lines": 40}\n'
    assert content[6:] == [line(number) for number in range(55, 60)]


def test_a_line_longer_than_an_end_is_kept_as_the_last():
    assert bounded([1], most=5) == line(1)
