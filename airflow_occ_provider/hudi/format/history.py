"""The archived instants of layout 2: an LSM tree of parquet files.

``_version_`` holds the number of the newest ``manifest_<number>``, and that manifest names the
parquet files of the history (Hudi 1.2.0, ``LSMTimeline``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat

from airflow_occ_provider.hudi.format.instant import Instant, State

VERSION_FILE = "_version_"

# Makes the named tuple without a Python call: a history needs thousands of them.
_NEW_INSTANT = partial(tuple.__new__, Instant)
_MANIFEST = re.compile(r"manifest_(\d+)")
_HISTORY_FILE = re.compile(r"\d+_\d+_\d+\.parquet")


def parse_version(content: bytes) -> int | None:
    """Read the number of the newest manifest; ``None`` if it cannot be read.

    Hudi deletes and rewrites its file, ``_version_``, at every change.
    """
    text = content.decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None


def newest_version(names: Iterable[str]) -> int | None:
    """Return the largest manifest number, for an unreadable ``_version_``."""
    matches = map(_MANIFEST.fullmatch, names)
    return max((int(match[1]) for match in matches if match), default=None)


def parse_manifest(content: bytes) -> tuple[str, ...]:
    """Return the bare names of the parquet files that make up the history.

    The instant times at the start of a name do not bound the file's content: in a table that was
    upgraded from version 6, instants lie outside (seen on 1.2.0).

    :raises ValueError: if it is cut off or is not a manifest.
    """
    import json

    manifest = json.loads(content)
    try:
        names = tuple(entry["fileName"] for entry in manifest["files"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is not a manifest of a history: {error!r}") from error
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
    """Return the instants in the columns of one history file; all are completed.

    The time identifies an instant, as in Hudi (1.2.0, ``ArchivedTimelineV2``): a savepoint, which
    shares its time with a commit, is never archived.
    """
    recorded = (times, actions, repeat(State.COMPLETED), repeat(file_name), completion_times)
    unknown = (repeat(None), repeat(None))
    return dict(zip(times, map(_NEW_INSTANT, zip(*recorded, *unknown, strict=False)), strict=True))
