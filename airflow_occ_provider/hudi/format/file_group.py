"""File groups, in which Hudi writes and detects conflicts, and markers of files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

FileGroupId: TypeAlias = tuple[str, str]
"""(partition path, file id); the partition path of an unpartitioned table is empty."""


MARKERS_TYPE_FILE = "MARKERS.type"
_INFIX = ".marker."
_KINDS = frozenset({"CREATE", "MERGE", "APPEND"})


class Marker(NamedTuple):
    """One data file that a pending instant has begun.

    :param partition: partition path, empty for an unpartitioned table.
    :param kind: ``CREATE``, ``MERGE`` or ``APPEND``.
    """

    partition: str
    data_file: str
    kind: str

    @property
    def file_group(self) -> FileGroupId:
        """The file group that the data file belongs to."""
        return self.partition, file_id(self.data_file)


def file_id(path: str) -> str:
    """Return the file id in the name of a base file or a log file.

    :param path: the name, or a path that ends with it.
    """
    return path.rpartition("/")[2].removeprefix(".").partition("_")[0]


def parse_marker(path: str) -> Marker | None:
    """Parse a marker's path; ``None`` if it is not a marker or is cut off.

    :param path: relative to the instant's marker folder: the name of a direct marker's file, or a
        line of the timeline server's files (Hudi 1.2.0, ``MarkerUtils``).
    """
    file, infix, kind = path.strip().rpartition(_INFIX)
    partition, _, name = file.rpartition("/")
    if not infix or not name or kind not in _KINDS:
        return None
    return Marker(partition, name, kind)


def parse_markers(paths: Iterable[str]) -> frozenset[Marker]:
    """Parse the markers among paths of an instant's marker folder.

    The timeline server rewrites the whole file of its markers, so a reader may find it empty or cut
    off. A marker stays until its instant ends: the union of several reads is safe.
    """
    return frozenset(filter(None, map(parse_marker, paths)))
