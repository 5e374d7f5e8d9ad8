"""The history of archived instants beside a timeline of layout 2: an LSM tree of parquet files.

``_version_`` holds the number of the newest ``manifest_<number>``, which names the parquet files
that make up the history (Hudi 1.2.0, ``LSMTimeline``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat

from airflow_occ_provider.hudi.format.instant import Instant, State

VERSION_FILE = "_version_"

# Makes the named tuple without a Python call, of which a history would need thousands.
_NEW_INSTANT = partial(tuple.__new__, Instant)
_MANIFEST = re.compile(r"manifest_(\d+)")
_HISTORY_FILE = re.compile(r"\d+_\d+_\d+\.parquet")


def parse_version(content: bytes) -> int | None:
    """Read the number of the newest manifest; ``None`` if it cannot be read.

    :param content: of ``_version_``, which Hudi deletes and writes again at every change.
    """
    text = content.decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None


def newest_version(names: Iterable[str]) -> int | None:
    """Return the largest number of a manifest, as Hudi does where ``_version_`` cannot be read.

    :param names: the bare names in the history's folder.
    """
    matches = map(_MANIFEST.fullmatch, names)
    return max((int(match[1]) for match in matches if match), default=None)


def parse_manifest(content: bytes) -> tuple[str, ...]:
    """Return the bare names of the parquet files that make up the history.

    The instants that a name begins with are no bounds of what is in the file: those of a table that
    was upgraded from version 6 lie outside of them (seen on 1.2.0).

    :param content: the whole manifest.
    :raises ValueError: if it is cut off or is no manifest.
    """
    import json

    manifest = json.loads(content)
    try:
        names = tuple(entry["fileName"] for entry in manifest["files"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no manifest of a history: {error!r}") from error
    for name in names:
        if _HISTORY_FILE.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of a history file")
    return names


def archived_instants(
    file_name: str,
    times: Sequence[str],
    actions: Sequence[str],
    completion_times: Sequence[str | None],
) -> dict[str, Instant]:
    """Return the instants of one history file by their times; all in it is completed.

    The time alone tells them apart, as in Hudi (1.2.0, ``ArchivedTimelineV2``): savepoints, which
    share theirs with a commit, are never archived.

    :param file_name: the file's bare name.
    :param times: its column ``instantTime``.
    :param actions: its column ``action``.
    :param completion_times: its column ``completionTime``.
    """
    told = (times, actions, repeat(State.COMPLETED), repeat(file_name), completion_times)
    not_told = (repeat(None), repeat(None))
    return dict(zip(times, map(_NEW_INSTANT, zip(*told, *not_told, strict=False)), strict=True))
