"""Decodes Avro as Hudi writes its metadata, with a limit on the number of values.

A collection's items may take no bytes: without a limit, a small file can use up the memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias

AVRO_MAGIC = b"Obj\x01"
MAX_VALUES = 10_000_000
"""Limit of fields and items in one file; a commit of 350,000 file groups reaches it."""

_MAX_SCHEMA_BYTES = 1 << 20
_MAX_HEADER_ENTRIES = 100
_MAX_LONG_BITS = 63
_DICT_COST = 3  # how much more memory an empty record takes than one field
# Each of Hudi's fields and items takes at least one byte, even if it is null.
_VALUES_PER_BYTE = 2 + _DICT_COST
_FEW_VALUES = 1000

Schema: TypeAlias = Any
Fields: TypeAlias = frozenset[str] | None


class TooLargeError(ValueError):
    """Content that decodes into more values than the limit allows."""


class _Cursor:
    """A position in encoded data, and how many values may still be read."""

    __slots__ = ("data", "limit", "pos", "remaining")

    def __init__(self, data: bytes, limit: int) -> None:
        self.data, self.pos = data, 0
        self.remaining = self.limit = min(limit, _VALUES_PER_BYTE * len(data) + _FEW_VALUES)

    def spend(self, values: int) -> None:
        self.remaining -= values
        if self.remaining < 0:
            raise TooLargeError(f"it holds more than {self.limit:,} values")

    def long(self) -> int:
        data, pos = self.data, self.pos
        byte = data[pos]
        if byte < 0x80:
            self.pos = pos + 1
            return (byte >> 1) ^ -(byte & 1)
        number, shift = byte & 0x7F, 7
        while byte & 0x80:
            pos += 1
            byte = data[pos]
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > _MAX_LONG_BITS + 7:
                raise ValueError("a number has more than 64 bits")
        self.pos = pos + 1
        return (number >> 1) ^ -(number & 1)

    def take(self, length: int) -> bytes:
        start, end = self.pos, self.pos + length
        if length < 0 or end > len(self.data):
            raise IndexError(end)
        self.pos = end
        return self.data[start:end]

    def count(self) -> int:
        """Read the number of items in the next block of a collection; 0 is its end."""
        count = self.long()
        if count < 0:
            self.long()  # the size of the block, for readers that skip it
        return abs(count)


_Decoder: TypeAlias = Callable[[_Cursor], Any]


class _Names(dict[str, _Decoder]):
    """The named types of a schema, and the record fields to keep."""

    def __init__(self, fields: Fields) -> None:
        super().__init__()
        self.fields = fields


def decode(content: bytes, limit: int = MAX_VALUES, fields: Fields = None) -> Any:
    """Decode the first value of an Avro container file.

    :param fields: names of the fields to keep, in records at any depth; by default all.
    :raises TooLargeError: if it holds more values than ``limit``.
    :raises ValueError: if it is cut off, compressed, or not an Avro container.
    """
    return _guarded(partial(_first_value, _Cursor(content, limit), fields))


def decode_value(schema: str, data: bytes, fields: Fields = None) -> Any:
    """Decode one value without a container, such as a record of a log block.

    :param schema: the Avro schema that the value was written with, as JSON.
    :raises ValueError: if it is cut off, or was written with another schema.
    """
    cursor = _Cursor(data, MAX_VALUES)
    return _guarded(lambda: _decoder(schema, fields)(cursor))


def _guarded(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (IndexError, struct.error) as error:
        raise ValueError("the metadata is cut off") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the metadata has no valid Avro schema: {error!r}") from error
    except RecursionError as error:
        raise TooLargeError("it is nested too deeply") from error


def _first_value(cursor: _Cursor, fields: Fields) -> Any:
    if cursor.take(len(AVRO_MAGIC)) != AVRO_MAGIC:
        raise ValueError("the metadata is not an Avro container")
    header = _header(cursor)
    codec = header.get("avro.codec", b"null").decode()
    if codec != "null":
        raise ValueError(f"it is compressed ({codec}), but Hudi never compresses its metadata")
    sync = cursor.take(16)
    cursor.long()  # the number of values
    end = cursor.long() + cursor.pos
    if cursor.data[end : end + len(sync)] != sync:
        raise IndexError(end)
    return _decoder(header["avro.schema"].decode(), fields)(cursor)


def _header(cursor: _Cursor) -> dict[str, bytes]:
    header: dict[str, bytes] = {}
    while count := cursor.count():
        if count > _MAX_HEADER_ENTRIES - len(header):
            raise TooLargeError(f"its header has more than {_MAX_HEADER_ENTRIES} entries")
        for _ in range(count):
            key = _string(cursor)
            header[key] = _bytes(cursor)
    return header


@lru_cache(maxsize=64)
def _decoder(schema: str, fields: Fields) -> _Decoder:
    if len(schema) > _MAX_SCHEMA_BYTES:
        raise TooLargeError(f"its schema is longer than {_MAX_SCHEMA_BYTES:,} characters")
    return _compile(json.loads(schema), "", _Names(fields))


def _compile(schema: Schema, space: str, names: _Names) -> _Decoder:
    if isinstance(schema, list):
        return _union([_compile(branch, space, names) for branch in schema], schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return _compile(kind, space, names)
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if isinstance(schema, str) or kind not in _COMPLEX:
        return names[_full_name(kind, space)]
    return _COMPLEX[kind](schema, space, names)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _named(schema: Schema, space: str) -> tuple[str, str]:
    """Return the full name of a type, and the namespace of the names inside it."""
    name = _full_name(schema["name"], schema.get("namespace", space))
    return name, name.rpartition(".")[0]


def _union(branches: list[_Decoder], schema: list[Schema]) -> _Decoder:
    if len(branches) == 2 and schema[0] == "null":
        other = branches[1]

        def optional(cursor: _Cursor) -> Any:
            index = cursor.data[cursor.pos]
            cursor.pos += 1
            if index == 2:  # the branch's number is zigzag encoded
                return other(cursor)
            if index:
                raise ValueError(f"a union of two has no branch {index >> 1}")
            return None

        return optional

    def union(cursor: _Cursor) -> Any:
        index = cursor.long()
        if not 0 <= index < len(branches):
            raise ValueError(f"a union of {len(branches)} has no branch {index}")
        return branches[index](cursor)

    return union


def _record(schema: Schema, space: str, names: _Names) -> _Decoder:
    fields: list[tuple[str, _Decoder, bool]] = []
    cost = len(schema["fields"]) + _DICT_COST

    def record(cursor: _Cursor) -> dict[str, Any]:
        cursor.spend(cost)
        value = {}
        for name, read, is_wanted in fields:
            if is_wanted:
                value[name] = read(cursor)
            else:
                read(cursor)
        return value

    name, inner = _named(schema, space)
    names[name] = record
    for field in schema["fields"]:
        is_wanted = names.fields is None or field["name"] in names.fields
        fields.append((field["name"], _compile(field["type"], inner, names), is_wanted))
    return record


def _array(schema: Schema, space: str, names: _Names) -> _Decoder:
    item = _compile(schema["items"], space, names)

    def array(cursor: _Cursor) -> list[Any]:
        items: list[Any] = []
        while count := cursor.count():
            cursor.spend(count)
            items += [item(cursor) for _ in range(count)]
        return items

    return array


def _map(schema: Schema, space: str, names: _Names) -> _Decoder:
    value = _compile(schema["values"], space, names)

    def mapping(cursor: _Cursor) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while count := cursor.count():
            cursor.spend(count)
            for _ in range(count):
                key = _string(cursor)
                entries[key] = value(cursor)
        return entries

    return mapping


def _enum(schema: Schema, space: str, names: _Names) -> _Decoder:
    symbols: list[str] = schema["symbols"]
    decoder = names[_named(schema, space)[0]] = lambda cursor: symbols[cursor.long()]
    return decoder


def _fixed(schema: Schema, space: str, names: _Names) -> _Decoder:
    size: int = schema["size"]
    decoder = names[_named(schema, space)[0]] = lambda cursor: cursor.take(size)
    return decoder


def _bytes(cursor: _Cursor) -> bytes:
    return cursor.take(cursor.long())


def _string(cursor: _Cursor) -> str:
    return cursor.take(cursor.long()).decode()


def _unpacked(layout: str) -> _Decoder:
    packed = struct.Struct(layout)
    return lambda cursor: packed.unpack(cursor.take(packed.size))[0]


_PRIMITIVES: dict[str, _Decoder] = {
    "null": lambda _: None,
    "boolean": lambda cursor: cursor.take(1) != b"\0",
    "int": _Cursor.long,
    "long": _Cursor.long,
    "float": _unpacked("<f"),
    "double": _unpacked("<d"),
    "bytes": _bytes,
    "string": _string,
}
_COMPLEX: dict[str, Callable[[Schema, str, _Names], _Decoder]] = {
    "record": _record,
    "array": _array,
    "map": _map,
    "enum": _enum,
    "fixed": _fixed,
}
