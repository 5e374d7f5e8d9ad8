"""Reads Hadoop's aggregated logs of an application on one node (a TFile).

The file holds one entry for each container: its logs, each with name and length. Entries lie in blocks;
the end of the file says where. See ``TFile``, ``BCFile`` and ``AggregatedLogFormat`` of Hadoop.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Protocol

_MAGIC = bytes.fromhex("d111d36891b5d7b639df414092bae150")
_TRAILER = struct.Struct(">q4s16s")
_INDEX = "data:BCFile.index"
_PART = 64 * 1024
_ENDED = "the aggregated log file is cut off"


class AggregatedLogError(ValueError):
    """The file is not one that can be read here; the message says why."""


class _Bytes(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes; empty at the end."""


def contents(file: BinaryIO, container: str, name: str, offset: int = 0) -> Iterator[bytes]:
    """Yield the parts of a container's log; nothing if it is not in the file.

    :param file: the file, opened for binary reading; it is read once from front to back.
    :param container: id of the container.
    :param name: such as ``stdout``.
    :param offset: the number of bytes to leave out.
    :raises AggregatedLogError: if the file has another format or compression, or is cut off.
    """
    for key, value in _entries(file):
        if key == container:
            yield from _log_in(value, name, offset)
            return


def containers(file: BinaryIO) -> list[str]:
    """Return the ids of the containers whose logs are in the file.

    :raises AggregatedLogError: if the file has another format or compression, or is cut off.
    """
    return [key for key, _ in _entries(file) if key.startswith("container_")]


def is_aggregated(file: BinaryIO) -> bool:
    """Return whether a file begins as the ones that can be read here."""
    file.seek(0)
    return file.read(len(_MAGIC)) == _MAGIC


def _entries(file: BinaryIO) -> Iterator[tuple[str, _Value]]:
    """Yield the key and the value of each entry; the next one follows what is left of the value."""
    for algorithm, start, compressed, _ in _blocks(file):
        block = _opened(file, algorithm, start, compressed)
        while (size := _number_or_end(block)) is not None:
            key, value = _exactly(block, size), _Value(block)
            yield key[2:].decode(errors="replace"), value
            while value.read(_PART):
                pass


def _log_in(value: _Value, wanted: str, offset: int) -> Iterator[bytes]:
    """Yield one of the logs in the entry of a container."""
    while head := value.read(2):
        name = _exactly(value, _short(head, value)).decode()
        left = int(_exactly(value, _short(value.read(2), value)))
        skipped = min(offset, left) if name == wanted else left
        left -= skipped
        for _ in _parts(value, skipped):
            pass
        yield from _parts(value, left)
        if name == wanted:
            return


def _short(head: bytes, source: _Bytes) -> int:
    head += source.read(2 - len(head)) if len(head) < 2 else b""
    if len(head) < 2:
        raise AggregatedLogError(_ENDED)
    return int.from_bytes(head, "big")


def _parts(source: _Bytes, size: int) -> Iterator[bytes]:
    while size:
        part = source.read(min(size, _PART))
        if not part:
            raise AggregatedLogError(_ENDED)
        size -= len(part)
        yield part


def _blocks(file: BinaryIO) -> list[tuple[str, int, int, int]]:
    """Return compression, place, stored size and size of each block with entries."""
    length = file.seek(0, 2)
    file.seek(max(0, length - _TRAILER.size))
    end = file.read(_TRAILER.size)
    if len(end) < _TRAILER.size or end[-len(_MAGIC) :] != _MAGIC:
        raise AggregatedLogError(
            "the aggregated log file is not a TFile, or is cut off. Set "
            "yarn.log-aggregation.file-formats=TFile on the cluster"
        )
    file.seek(_TRAILER.unpack(end)[0])
    for _ in range(_number(file)):
        name, algorithm = _text(file), _text(file)
        region = (_number(file), _number(file), _number(file))
        if name == _INDEX:
            index = _opened(file, algorithm, *region[:2])
            algorithm = _text(index)
            return [
                (algorithm, _number(index), _number(index), _number(index))
                for _ in range(_number(index))
            ]
    raise AggregatedLogError("the aggregated log file has no index")


def _opened(file: BinaryIO, algorithm: str, start: int, size: int) -> _Bytes:
    stored = _Region(file, start, size)
    if algorithm == "none":
        return stored
    if algorithm == "gz":
        return _Inflated(stored)
    raise AggregatedLogError(
        f"the aggregated log file is compressed with {algorithm!r}. Set "
        "yarn.nodemanager.log-aggregation.compression-type to none or gz on the cluster"
    )


class _Region:
    """A part of the file, read while nothing else reads the file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file = file
        self._left = size
        file.seek(start)

    def read(self, size: int, /) -> bytes:
        found = self._file.read(min(size, self._left))
        self._left -= len(found)
        return found


class _Inflated:
    """A part that zlib has compressed."""

    def __init__(self, stored: _Region) -> None:
        self._stored = stored
        self._inflater = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        while size:
            given = self._inflater.unconsumed_tail or self._stored.read(_PART)
            try:
                found = self._inflater.decompress(given, size)
            except zlib.error as error:
                raise AggregatedLogError(
                    f"the aggregated log file cannot be inflated: {error}"
                ) from error
            if found or not given:
                return found
        return b""


class _Value:
    """The value of an entry: chunks, the last of which has no negative length."""

    def __init__(self, block: _Bytes) -> None:
        self._block = block
        self._left = 0
        self._is_last = False

    def read(self, size: int, /) -> bytes:
        while not self._left and not self._is_last:
            length = _number(self._block)
            self._left, self._is_last = abs(length), length >= 0
        found = self._block.read(min(size, self._left)) if self._left else b""
        if self._left and not found:
            raise AggregatedLogError(_ENDED)
        self._left -= len(found)
        return found


def _exactly(source: _Bytes, size: int) -> bytes:
    return b"".join(_parts(source, size))


def _text(source: _Bytes) -> str:
    return _exactly(source, _number(source)).decode()


def _number(source: _Bytes) -> int:
    found = _number_or_end(source)
    if found is None:
        raise AggregatedLogError(_ENDED)
    return found


def _number_or_end(source: _Bytes) -> int | None:
    """Read a number of variable length, as ``Utils.readVLong`` of TFile does."""
    head = source.read(1)
    if not head:
        return None
    first = head[0] - 256 if head[0] > 127 else head[0]
    if first >= -32:
        return first
    kind = (first + 128) // 8
    if kind == 0:
        return int.from_bytes(_exactly(source, first + 129), "big", signed=True)
    more, base = (1, 52) if kind >= 7 else (2, 88) if kind >= 3 else (3, 112)
    return (first + base << 8 * more) | int.from_bytes(_exactly(source, more), "big")
