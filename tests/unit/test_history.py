from __future__ import annotations

import json
import os
import sys

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from airflow_occ_provider.errors import (
    HistoryUnreadableError,
    MetadataCorruptError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.format.archive import newest_version, parse_manifest, parse_version
from airflow_occ_provider.hudi.format.instant import Instant, State
from airflow_occ_provider.storage.archive import Contents, History
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.listing import list_folder

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

# The columns that Hudi 1.2.0 writes (HoodieLSMTimelineInstant).
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("instantTime", "completionTime", "action")),
        *((name, pa.binary()) for name in ("metadata", "plan")),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
OLD, NEW = range(10, 14), range(14, 17)


def time_of(number):
    return f"202611211230{number:02}000"


def row(number, action="commit"):
    return {
        "instantTime": time_of(number),
        "completionTime": f"202611211230{number:02}500",
        "action": action,
        "metadata": f"metadata {number}".encode(),
        "plan": f"plan {number}".encode() if action == "replacecommit" else None,
        "version": 1,
    }


def write(folder, rows, level=0):
    name = f"{rows[0]['instantTime']}_{rows[-1]['instantTime']}_{level}.parquet"
    parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / name)
    return name


def point(folder, number, names, version=None):
    entries = [{"fileName": name, "fileLen": 1} for name in names]
    (folder / f"manifest_{number}").write_text(json.dumps({"files": entries}))
    (folder / "_version_").write_text(str(number) if version is None else version)


@pytest.fixture
def folder(tmp_path):
    rows = [row(number) for number in OLD]
    first = write(tmp_path, rows)
    second = write(tmp_path, [row(14), row(15, "clean"), row(16, "replacecommit")])
    point(tmp_path, 7, [second, first])
    return tmp_path


def history_in(folder, file_system=None):
    files = TableFolder("file", str(folder.parent), file_system or fsspec.filesystem("file"), 60)
    return History(files, folder.name)


@pytest.fixture(params=["local", "memory"])
def history(request, folder):
    if request.param == "local":
        return history_in(folder)
    memory = MemoryFileSystem()
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    for path in folder.iterdir():
        memory.pipe(f"/lake/history/{path.name}", path.read_bytes())
    return History(TableFolder("memory", "memory:///lake", memory, 60), "history")


def test_archived_instants_have_the_values_of_active_ones(history):
    instants = history.instants()
    assert [instant.time for instant in instants] == [time_of(n) for n in (*OLD, *NEW)]
    assert instants[-1] == Instant(
        time_of(16),
        "replacecommit",
        State.COMPLETED,
        f"{time_of(14)}_{time_of(16)}_0.parquet",
        "20261121123016500",
    )
    assert instants[-1].archived
    assert instants[-1].requested_action == "replacecommit"


def test_contents_are_read_of_those_asked_for(history):
    *_, cleaned, replaced = history.instants()
    stranger = Instant("20200101000000000", "commit", State.COMPLETED, "x.parquet")
    assert [history.contents(one) for one in (replaced, cleaned, stranger, replaced)] == [
        Contents(b"metadata 16", b"plan 16"),
        Contents(b"metadata 15", None),
        Contents(None, None),
        Contents(b"metadata 16", b"plan 16"),
    ]


def test_times_are_read_without_their_metadata(folder, monkeypatch):
    read = []
    original = parquet.ParquetFile.read

    def reading(self, columns, **how):
        read.extend(columns)
        return original(self, columns, **how)

    monkeypatch.setattr(parquet.ParquetFile, "read", reading)
    history_in(folder).instants()
    assert set(read) == {"instantTime", "action", "completionTime"}


@pytest.mark.parametrize("version", ["", "x", "\x00\x00", None])
def test_without_a_readable_version_the_largest_manifest_counts(folder, version):
    point(folder, 12, [write(folder, [row(20)])], version)
    (folder / "manifest_13.tmp").write_text("{")
    if version is None:
        (folder / "_version_").unlink()
    found = history_in(folder).instants()
    assert [instant.time for instant in found] == [time_of(20)]


def test_no_history_yet_is_an_empty_one(tmp_path):
    assert history_in(tmp_path).instants() == ()
    assert history_in(tmp_path / "none").instants() == ()


class Merging(LocalFileSystem):
    """Merges the history into one file, as Hudi does, at the first look at a manifest."""

    cachable = False
    merged = False

    def cat_file(self, path, *rest, **how):
        content = super().cat_file(path, *rest, **how)
        if "manifest_" in path and not self.merged:
            self.merged = True
            folder = path.rsplit("/", 1)[0]
            merge(folder)
        return content


def merge(folder):
    from pathlib import Path

    folder = Path(folder)
    for path in folder.glob("*.parquet"):
        path.unlink()
    rows = [*map(row, OLD), row(14), row(15, "clean"), row(16, "replacecommit")]
    name = write(folder, rows, level=1)
    point(folder, 8, [name])
    (folder / "manifest_7").unlink()


def test_a_merge_while_it_is_read_is_read_again(folder):
    found = history_in(folder, Merging()).instants()
    assert [instant.time for instant in found] == [time_of(n) for n in (*OLD, *NEW)]


def test_contents_are_found_where_a_merge_has_put_them(folder):
    archived = history_in(folder)
    before = archived.instants()
    merge(folder)
    found = [archived.contents(one).metadata for one in before]
    assert found == [f"metadata {number}".encode() for number in (*OLD, *NEW)]


def test_each_file_is_opened_only_twice_to_read_it_all(folder, monkeypatch):
    opened, original = [], parquet.ParquetFile
    monkeypatch.setattr(parquet, "ParquetFile", lambda path: opened.append(path) or original(path))
    names = [write(folder, [row(number)]) for number in range(10, 30)]
    point(folder, 9, names)
    archived = history_in(folder)
    told = [archived.contents(instant).metadata for instant in archived.instants()]
    assert told == [f"metadata {number}".encode() for number in range(10, 30)]
    assert len(opened) == 2 * len(names)


def test_what_stays_lost_is_an_error(folder):
    for path in folder.glob("*.parquet"):
        path.unlink()
    with pytest.raises(TableUnreadableError, match=r"disappeared twice.*Remedy: read again"):
        history_in(folder).instants()


@pytest.mark.parametrize("pattern", ["*.parquet", "manifest_7"])
def test_what_is_cut_off_is_an_error(folder, pattern):
    for path in folder.glob(pattern):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MetadataCorruptError, match="cannot be decoded"):
        history_in(folder).instants()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"files": 1}', b'{"files": [{}]}', b'{"files": [{"fileName": "x"}]}'],
)
def test_what_is_no_manifest_is_refused(content):
    with pytest.raises(ValueError, match=r"manifest|Expecting|not the name"):
        parse_manifest(content)


def test_the_parts_of_a_history():
    content = b'{"files": [{"fileName": "100_200_1.parquet", "fileLen": 5}]}'
    assert parse_manifest(content) == ("100_200_1.parquet",)
    assert parse_version(b"16\n") == 16
    assert parse_version(b"-1") is None
    assert newest_version(["manifest_9", "manifest_10", "manifest_11.tmp", "_version_"]) == 10
    assert newest_version([]) is None


def test_without_pyarrow_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HistoryUnreadableError, match=r"its extra history"):
        history_in(folder).instants()


def test_a_listing_has_names_and_times(tmp_path):
    (tmp_path / "a").write_text("")
    (tmp_path / "sub").mkdir()
    os.utime(tmp_path / "a", ns=(0, 1795264667127802689))
    local = list_folder(fsspec.filesystem("file"), str(tmp_path))
    assert sorted(local.names) == ["a", "sub"]
    assert local.modified("a") == 1795264667127
    assert local.modified("gone") is None
    with pytest.raises(FileNotFoundError):
        list_folder(fsspec.filesystem("file"), str(tmp_path / "none"))


@pytest.mark.parametrize(
    "told",
    [
        {"mtime": 1795264667.127},
        {"LastModified": "2026-11-21T12:37:47.127+00:00"},
        {"updated": "2026-11-21T12:37:47.127Z"},
        {"modificationTime": 1795264667127},
        {"modification_time": 1795264667127},
        {},
    ],
)
def test_each_storage_has_its_own_form_of_times(told):
    class Remote(MemoryFileSystem):
        protocol = "remote"
        asked = 0

        def ls(self, path, detail=True, **how):
            self.asked += 1
            return [
                {"name": f"{path}/a", "type": "file", **told},
                {"name": f"{path}/d/", "type": "directory"},
            ]

    remote = Remote()
    listing = list_folder(remote, "/lake")
    assert sorted(listing.names) == ["a", "d"]
    assert listing.modified("a") == (1795264667127 if told else None)
    assert listing.modified("gone") is None
    assert remote.asked == 1


def test_the_object_that_marks_a_folder_is_not_in_it():
    """As adlfs and gcsfs list the folders of Hadoop's connectors."""

    class Remote(MemoryFileSystem):
        protocol = "remote"

        def ls(self, path, detail=True, **how):
            marks = [path, f"{path}/"]
            return [{"name": name, "type": "directory"} for name in [*marks, f"{path}/a"]]

        def find(self, path, **how):
            return [f"{path}/", f"{path}/a", f"{path}/d/", f"{path}/d/a"]

    remote = Remote()
    assert list(list_folder(remote, "/lake").names) == ["a"]
    assert TableFolder("remote", "remote://lake", remote, 5.0).below("t") == ["a", "d/a"]
