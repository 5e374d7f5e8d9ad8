"""The record in a metadata file: Avro, JSON, or from a layout 1 archive."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

from airflow_occ_provider.hudi.format.avro import AVRO_MAGIC, MAX_VALUES, Fields, TooLargeError, decode

Content: TypeAlias = bytes | Mapping[str, Any]
"""A file's content, or the decoded record from an archive of layout 1."""

_OF_A_STATISTIC = {"fileId", "path", "prevCommit", "numWrites", "partitionPath"}
_OF_A_RELEASE = {"prevBaseFile", "totalLogBlocksSize"}  # their presence shows the release


def is_self_describing(content: Content) -> bool:
    """Whether content is an Avro container or JSON, not Avro without its schema.

    If Hudi 1.0.2 upgraded a table from version 6, its history holds Avro without a schema; Hudi cannot
    read it either (``tests/golden/tables/1.0.2/upgraded``).
    """
    if isinstance(content, Mapping):
        return True
    return content[:4] == AVRO_MAGIC or content.lstrip()[:1] == b"{"


def read_record(content: Content, fields: Fields = None) -> Mapping[str, Any]:
    """Decode a metadata file.

    :param fields: the names of the fields to keep; ``None`` for all.
    :raises ValueError: if the content is not a record, or is cut off.
    """
    if isinstance(content, Mapping):
        return content
    is_avro = content[:4] == AVRO_MAGIC
    record = decode(content, fields=fields) if is_avro else _read_json(content, fields)
    if not isinstance(record, dict):
        raise ValueError("the metadata is not a record")
    return record


def _read_json(content: bytes, fields: Fields) -> Any:
    import json

    values = sum(content.count(mark) for mark in (b"{", b"[", b","))
    if values > MAX_VALUES:
        raise TooLargeError(f"it holds more than {MAX_VALUES:,} values")
    return json.loads(content, object_hook=partial(_kept, fields) if fields else None)


def _kept(fields: frozenset[str], value: dict[str, Any]) -> dict[str, Any]:
    """Drop unused fields from a write statistic; return other objects unchanged."""
    if value.keys() >= _OF_A_STATISTIC:
        return {key: value[key] for key in (fields | _OF_A_RELEASE) & value.keys()}
    return value
