"""Archived instants: an LSM tree of layout 2, and log files of layout 1.

``_version_`` holds the number of the newest ``manifest_<number>``, and that manifest names the
parquet files of the history (Hudi 1.2.0, ``LSMTimeline``).

A file of layout 1 is a sequence of blocks: ``#HUDI#``, length, version and type of the block, a header
that holds the Avro schema, the content, a footer, and the length again (Hudi 1.2.0,
``HoodieLogFileReader``).
The content is a version, the number of records, and each record preceded by its length
(``HoodieAvroDataBlock``). A record is one state of one instant (``HoodieArchivedMetaEntry``).
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from airflow_occ_provider.hudi.format.avro import TooLargeError, decode_value
from airflow_occ_provider.hudi.format.instant import Instant, State, from_naive_ms, naive_ms, zone_ms

VERSION_FILE = "_version_"

# Makes the named tuple without a Python call: a history needs thousands of them.
_NEW_INSTANT = partial(tuple.__new__, Instant)
_MANIFEST = re.compile(r"manifest_(\d+)")
_HISTORY_FILE = re.compile(r"\d+_\d+_\d+\.parquet")
Reader = Callable[[int, int], bytes]
"""Returns a file's bytes from one offset up to another, or to the end of the file."""
_MAGIC = b"#HUDI#"
_VERSION, _AVRO_DATA, _SCHEMA = 1, 3, 2  # block version, block type, key of the schema in the header
_CONTENT_VERSIONS = {1, 2, 3}
_SCAN_BYTES = 1 << 20
_MAX_SCHEMA_BYTES = 1 << 20
_MAX_HEADER_ENTRIES = 100
_MAX_RECORD_BYTES = 1 << 27
_FILE = re.compile(r"\.commits_\.archive\.\d+(_\d+-\d+-\d+)?")
_INDEX = frozenset({"commitTime", "actionType", "actionState", "stateTransitionTime"})
_METADATA = {
    "commit": "hoodieCommitMetadata",
    "deltacommit": "hoodieCommitMetadata",
    "replacecommit": "hoodieReplaceCommitMetadata",
    "rollback": "hoodieRollbackMetadata",
}
_PLAN = {
    "compaction": "hoodieCompactionPlan",
    "logcompaction": "hoodieCompactionPlan",
    "replacecommit": "hoodieRequestedReplaceMetadata",
}


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


class RecordPosition(NamedTuple):
    """The bytes of a record in a file of the archive, and their Avro schema."""

    file: str
    start: int
    stop: int
    schema: str


class Entry(NamedTuple):
    """One state of an archived instant.

    :param time: requested time.
    :param action: Hudi's action: a compaction completes as a ``commit``.
    :param state: the state; entries without one (all before Hudi 0.5.1) are completed.
    :param changed: when it reached that state, in the table's zone; not recorded before Hudi 0.14.
    :param position: the position of its record.
    """

    time: str
    action: str
    state: State
    changed: str | None
    position: RecordPosition


class InstantRecords(NamedTuple):
    """The positions of the records of an archived instant, if it has them."""

    metadata: RecordPosition | None = None
    plan: RecordPosition | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    kind: int
    schema: str
    start: int
    stop: int
    end: int


def is_archive_file(name: str) -> bool:
    """Whether a file in the archive's folder holds instants."""
    return _FILE.fullmatch(name) is not None


def read_entries(file: str, read: Reader, size: int) -> Iterator[Entry]:
    """Yield the entries of one archive file, without what the instants did.

    An unfinished block is ignored, as Hudi does: Hudi removes instants from the active timeline only
    after it has archived them. An entry without a time or an action is ignored.

    :raises TooLargeError: if a record or its schema is larger than any that Hudi writes.
    :raises KeyError: if the schema has no field for the time or the action.
    :raises ValueError: if the file is not an archive, or is damaged.
    """
    if not _MAGIC.startswith(read(0, min(size, len(_MAGIC)))):
        raise ValueError("it is not a file of Hudi's log format: it does not begin with #HUDI#")
    for block in _blocks(read, size):
        if block.kind == _AVRO_DATA:
            for start, stop in _records(read, block):
                position = RecordPosition(file, start, stop, block.schema)
                record = decode_value(block.schema, read(start, stop), fields=_INDEX)
                if record["commitTime"] is not None and record["actionType"] is not None:
                    yield _entry(position, record)


def instants_of(entries: Iterable[Entry]) -> dict[Instant, InstantRecords]:
    """Return the completed instants in an archive, and where their records are.

    Entries may repeat: Hudi archives again what it could not remove from the timeline.
    """
    completed: dict[tuple[str, str], Entry] = {}
    requested: dict[str, str | None] = {}
    plans: dict[str, RecordPosition] = {}
    for entry in entries:
        if entry.state is State.COMPLETED:
            completed[entry.time, entry.action] = entry
        elif entry.state is State.REQUESTED:
            requested[entry.time] = entry.changed
            if entry.action in _PLAN:
                plans[entry.time] = entry.position
    return {
        Instant(
            entry.time,
            entry.action,
            entry.state,
            entry.position.file,
            _completion(entry, requested.get(entry.time)),
        ): InstantRecords(entry.position if entry.action in _METADATA else None, plans.get(entry.time))
        for entry in completed.values()
    }


def _completion(entry: Entry, requested: str | None) -> str | None:
    """Return when an instant completed, in the zone of its requested time.

    Layout 1 has it in the zone of the writer's JVM, also if the timeline is in UTC (Hudi 0.15.0 and 1.x,
    ``HoodieInstantTimeGenerator.formatDate``).

    :param requested: when it was requested, in that zone; ``None`` if the archive does not say so.
    """
    completed_ms = naive_ms(entry.changed or "")
    ahead_ms = zone_ms(requested or "", naive_ms(entry.time))
    return from_naive_ms(completed_ms - ahead_ms) if completed_ms and ahead_ms else entry.changed


def read_archived_record(
    position: RecordPosition, data: bytes, fields: frozenset[str]
) -> Mapping[str, Any] | None:
    """Decode fields of an instant's metadata or plan; ``None`` if it holds neither.

    :raises ValueError: if the record cannot be decoded.
    """
    keys = frozenset((*_METADATA.values(), *_PLAN.values()))
    record = decode_value(position.schema, data, fields=fields | keys)
    return next((record[key] for key in keys if record.get(key)), None)


def _blocks(read: Reader, size: int) -> Iterator[_Block]:
    start = 0
    while start < size:
        block = _block(read, start, size)
        if block:
            yield block
        start = block.end if block else _next_magic(read, start + 1, size)


def _block(read: Reader, start: int, size: int) -> _Block | None:
    """Return the block at an offset; ``None`` if it is unfinished."""
    head = read(start, start + 22)
    if len(head) < 22 or not head.startswith(_MAGIC):
        return None
    length, version, kind = struct.unpack(">qii", head[len(_MAGIC) :])
    end = start + len(_MAGIC) + 8 + length
    if length < 32 or end > size or _number(read, end - 8, 8) != length + len(_MAGIC):
        return None
    if version != _VERSION:
        raise ValueError(f"it has version {version} of Hudi's log format; only {_VERSION} is supported")
    schema, at = _header(read, start + 22, end)
    stop = at + 8 + _number(read, at, 8)
    if not at <= stop <= end:
        raise ValueError("the content of a block exceeds the block")
    return _Block(kind, schema, at + 8, stop, end)


def _header(read: Reader, at: int, end: int) -> tuple[str, int]:
    """Return the schema in a block's header, and the offset after the header."""
    entries = _number(read, at, 4)
    schema = ""
    at += 4
    if not 0 <= entries <= _MAX_HEADER_ENTRIES:
        raise TooLargeError(f"the header of a block has {entries:,} entries")
    for _ in range(entries):
        key, length = _number(read, at, 4), _number(read, at + 4, 4)
        at += 8 + length
        if not 0 <= length <= _MAX_SCHEMA_BYTES:
            raise TooLargeError(f"the header of a block has an entry of {length:,} bytes")
        if at > end:
            raise ValueError("the header of a block exceeds the block")
        if key == _SCHEMA:
            schema = sys.intern(read(at - length, at).decode())
    return schema, at


def _records(read: Reader, block: _Block) -> Iterator[tuple[int, int]]:
    version, records = _number(read, block.start, 4), _number(read, block.start + 4, 4)
    if version not in _CONTENT_VERSIONS:
        raise ValueError(f"the content of a block has the unknown version {version}")
    start = block.start + 8
    for _ in range(records):
        stop = start + 4 + _number(read, start, 4)
        if not start + 4 <= stop <= block.stop:
            raise ValueError("a record exceeds its block")
        if stop - start > _MAX_RECORD_BYTES:
            raise TooLargeError(f"a record has {stop - start:,} bytes")
        yield start + 4, stop
        start = stop


def _entry(position: RecordPosition, record: Mapping[str, Any]) -> Entry:
    time, action = str(record["commitTime"]), str(record["actionType"])
    if not time.isdecimal() or not action.isalpha():
        raise ValueError(f"{action!r} at {time!r} is not an instant")
    state = State(record.get("actionState") or State.COMPLETED)
    return Entry(time, action, state, record.get("stateTransitionTime"), position)


def _next_magic(read: Reader, start: int, size: int) -> int:
    """Return the offset of the next block, or the end of the file."""
    while start < size:
        offset = read(start, start + _SCAN_BYTES).find(_MAGIC)
        if offset >= 0:
            return start + offset
        start += _SCAN_BYTES - len(_MAGIC) + 1
    return size


def _number(read: Reader, at: int, width: int) -> int:
    data = read(at, at + width)
    if len(data) < width:
        raise ValueError("it is cut off")
    return int.from_bytes(data, "big", signed=True)
