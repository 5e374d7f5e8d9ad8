"""The folder of a task run's drivers, on every storage."""

from __future__ import annotations

from airflow_occ_provider.storage.report import Report, RunFolder


def test_what_a_driver_needs_is_put_read_and_removed(storage):
    of = RunFolder.of(f"{storage.root}/db/trips", "k")
    folder = RunFolder(of.url, file_system=storage.file_system)
    assert folder.url == f"{storage.root}/db/.airflow_occ/trips/k"
    url = folder.put("1/job/a.py", b"old")
    assert folder.put("1/job/a.py", b"print()") == url == f"{folder.url}/1/job/a.py"
    report = Report(folder.report("1"), file_system=storage.file_system)
    assert report.lines() == []
    folder.put("1.jsonl", b"one\ntwo\nthr")
    assert report.lines() == ["one\n", "two\n"]
    folder.put("1.jsonl", b"one\ntwo\nthree\n")
    assert report.lines() == ["three\n"]
    other = RunFolder(f"{folder.url}2", file_system=storage.file_system)
    other.put("1.jsonl", b"")
    folder.remove("1")
    folder.remove("1")
    assert report.lines() == []
    path = of.url.removeprefix("s3a://")
    assert sorted(map(str, storage.file_system.find(path))) == [f"{path}/1.jsonl"]
    folder.remove()
    assert not storage.file_system.exists(path)
    assert storage.file_system.exists(f"{path}2/1.jsonl")
