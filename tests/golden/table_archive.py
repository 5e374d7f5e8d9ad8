"""A golden table as one small archive: its ``.hoodie`` folder, and its data files by name alone."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent / "tables"
"""The recorded tables, by release of Hudi."""
MTIMES = "mtimes.json"
_TABLE = "table/"


def pack(table: Path, archive: Path, *, metadata_table: bool = False, checksums: bool = False) -> None:
    """Pack a table: data files become empty, times of change are kept in milliseconds.

    :param table: base path.
    :param archive: the zip file to write.
    :param metadata_table: whether the timeline of the metadata table is taken along.
    :param checksums: whether ``.crc`` files are taken along.
    """
    mtimes = {}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(table.rglob("*")):
            name = path.relative_to(table).as_posix()
            if not _is_taken(name, path, metadata_table=metadata_table, checksums=checksums):
                continue
            mtimes[name] = path.stat().st_mtime_ns // 1_000_000
            content = path.read_bytes() if path.is_file() and name.startswith(".hoodie/") else b""
            packed.writestr(_TABLE + name + ("/" if path.is_dir() else ""), content)
        packed.writestr(MTIMES, json.dumps(mtimes, indent=0))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a golden table with its times of change, and return its base path.

    :param archive: what ``pack`` wrote.
    :param folder: where to; the table becomes ``folder/table``.
    """
    with zipfile.ZipFile(archive) as packed:
        mtimes = json.loads(packed.read(MTIMES))
        packed.extractall(folder, [name for name in packed.namelist() if name != MTIMES])
    table = folder / _TABLE
    for name, milliseconds in sorted(mtimes.items(), reverse=True):  # what is inside before its folder
        os.utime(table / name, ns=(milliseconds * 1_000_000,) * 2)
    return table


def _is_taken(name: str, path: Path, *, metadata_table: bool, checksums: bool) -> bool:
    if name.endswith(".crc") and not checksums:
        return False
    if name.startswith(".hoodie/metadata/"):
        return metadata_table and name.startswith(".hoodie/metadata/.hoodie")
    return path.is_file() or path.is_dir()
