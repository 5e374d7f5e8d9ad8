"""The folders of a task run's attempts, on every storage."""

from __future__ import annotations

from airflow_occ_provider.storage.attempt_folder import AttemptFolder, run_folder


def test_files_are_written_as_a_whole_listed_read_and_removed(storage):
    run = run_folder(f"{storage.root}/db/trips", "k")
    folder, other, more = (
        AttemptFolder(url, file_system=storage.file_system)
        for url in (f"{run}/1", f"{run}/12", f"{run}2")
    )
    assert folder.entries() == {}
    assert folder.read("life") is None
    for content in (b"1", b"22"):
        folder.write("life", content)
    folder.write("job/trips.py", b"print()")
    assert folder.entries().keys() == {"life", "job"}
    assert folder.read("life") == b"22"
    assert folder.read("job/trips.py") == b"print()"
    for each in (other, more):
        each.write("revoked", b"")
    folder.remove("life")
    folder.remove("life")
    assert folder.entries().keys() == {"job"}
    assert folder.clear()
    assert folder.clear()
    assert folder.entries() == {}
    assert AttemptFolder(run, file_system=storage.file_system).clear()
    assert other.entries() == {}
    assert more.entries().keys() == {"revoked"}
