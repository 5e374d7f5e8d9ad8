"""The driver's report: written as a whole, bounded, and read line by line."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import fsspec
import pytest

from airflow_occ_provider.errors import ConfigurationError, TableUnreadableError
from airflow_occ_provider.in_driver import report as in_driver
from airflow_occ_provider.storage.report import Report, RunFolder, open_report


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


def bounded(numbers, most=200):
    lines = in_driver.Lines(most)
    for number in numbers:
        lines.add([line(number)])
    return lines.content()


def test_of_a_long_report_the_first_and_the_last_lines_are_kept():
    each = len(line(10))
    content = bounded(range(10, 60), most=5 * each).splitlines(keepends=True)
    assert content[:5] == [line(number) for number in range(10, 15)]
    assert content[5] == b'airflow_occ_provider: {"fact": "left_out", "lines": 40}\n'
    assert content[6:] == [line(number) for number in range(55, 60)]


def test_a_line_longer_than_an_end_is_kept_as_the_last():
    assert bounded([1], most=5) == line(1)


# The worker's side.


def numbers(lines):
    return [int(one.rpartition(":")[2]) for one in lines]


def test_a_report_is_read_line_by_line(tmp_path):
    file = tmp_path / "1.jsonl"
    report = open_report(str(file))
    assert report.lines() == []
    file.write_bytes(line(1) + b"airflow_occ_provider: 2")
    assert numbers(report.lines()) == [1]
    assert report.lines() == []
    file.write_bytes(line(1) + line(2) + line(3))
    assert numbers(report.lines()) == [2, 3]
    file.write_bytes(b"")  # it is being replaced
    assert report.lines() == []
    file.write_bytes(line(1) + line(2) + line(3) + line(4))
    assert numbers(report.lines()) == [4]
    assert report.missed == 0


def test_a_line_ends_only_at_a_line_feed(tmp_path):
    odd = "a\u2028b\x0bc\x85d\r\n"
    (tmp_path / "1.jsonl").write_bytes(odd.encode() + b"\xff\n")
    assert open_report(f"{tmp_path}/1.jsonl").lines() == [odd, "\ufffd\n"]


def test_a_long_report_is_read_without_its_middle(tmp_path):
    file, each = tmp_path / "1.jsonl", len(line(10))
    report, fresh = open_report(str(file)), open_report(str(file))
    seen = []
    for last in (15, 18, 24, 25, 60, 61):
        file.write_bytes(bounded(range(10, last), most=5 * each))
        seen += numbers(report.lines())
    assert seen == [*range(10, 18), *range(19, 25), *range(55, 61)]
    assert report.missed == 1 + 30
    assert numbers(fresh.lines()) == [*range(10, 15), *range(56, 61)]
    assert fresh.missed == 41


def test_a_report_that_cannot_be_read_is_an_error(tmp_path):
    class Denied(type(fsspec.filesystem("file"))):
        def cat_file(self, *_, **__):
            raise PermissionError("no")

    with pytest.raises(TableUnreadableError):
        Report(f"{tmp_path}/1.jsonl", file_system=Denied()).lines()


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        ("s3a://lake/db//trips/", "s3a://lake/db/.airflow_occ/trips/k"),
        ("s3a://lake/trips", "s3a://lake/.airflow_occ/trips/k"),
        ("/lake/trips", "/lake/.airflow_occ/trips/k"),
        ("file:///lake/trips", "file:///lake/.airflow_occ/trips/k"),
        ("hdfs://nn:8020/lake/trips", "hdfs://nn:8020/lake/.airflow_occ/trips/k"),
    ],
)
def test_the_reports_of_a_table_are_beside_it(table, folder):
    assert RunFolder.of(table, "k").url == folder
    assert RunFolder.of(table, "k").report("1") == f"{folder}/1.jsonl"
    assert RunFolder.of(table, "k", "gs://scratch/occ/").url == "gs://scratch/occ/k"


@pytest.mark.parametrize("table", ["s3a://lake", "s3a://lake/", "/lake", "file:///lake"])
def test_a_table_without_a_parent_needs_a_place(table):
    with pytest.raises(ConfigurationError, match="report_path"):
        RunFolder.of(table, "k")
    assert RunFolder.of("s3a://lake", "k", "/scratch").url == "/scratch/k"
    with pytest.raises(ConfigurationError, match="report_path: 'scratch' is not a path"):
        RunFolder.of(table, "k", "scratch")


def test_what_is_put_is_private_and_is_removed(tmp_path):
    folder = RunFolder.of(str(tmp_path / "t"), "k")
    url = folder.put("1/job/a.py", b"secret")
    assert url == f"{tmp_path}/.airflow_occ/t/k/1/job/a.py"
    assert stat.S_IMODE(Path(url).stat().st_mode) == 0o600
    folder.put("1/job/a.py", b"new")
    assert Path(url).read_bytes() == b"new"
    Path(folder.report("1")).write_text("")
    folder.remove("1")
    assert [path.name for path in Path(folder.url).iterdir()] == ["1.jsonl"]
    folder.remove()
    folder.remove()
    assert not Path(folder.url).exists()
